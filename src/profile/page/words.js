// SPDX-License-Identifier: Apache-2.0
// Numbers as text, and elements. Text from a recording becomes text of the page, never a part of its markup.
const byId = (id) => document.getElementById(id);

// element("td", {class: "word"}, "text", otherElement)
function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on"))
      made.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false)
      made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// Characters that would move or hide other text are shown as a mark.
const visible = (text) => text.replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");

const kUnits = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];

// Milliseconds with all six decimals: exact to the nanosecond.
function exactMs(ns) {
  const whole = Math.abs(Math.round(ns));
  return (ns < 0 ? "-" : "") + Math.floor(whole / 1e6) + "." + String(whole % 1e6).padStart(6, "0");
}
// In the unit that suits, without losing a nanosecond: "12.345 µs".
function exactTime(ns) {
  const [unit, size] = kUnits.find(([, size]) => Math.abs(ns) >= size) || kUnits[3];
  const whole = Math.abs(Math.round(ns));
  const rest = String(whole % size).padStart(Math.round(Math.log10(size)), "0").replace(/0+$/, "");
  return (ns < 0 ? "-" : "") + Math.floor(whole / size) + (size > 1 && rest ? "." + rest : "") + " " + unit;
}
// Three digits of it.
function roundTime(ns) {
  const [unit, size] = kUnits.find(([, size]) => Math.abs(ns) >= size * 0.9995) || kUnits[3];
  return threeDigits(ns / size) + " " + unit;
}
function threeDigits(number) {
  const digits = Math.abs(number) >= 99.95 ? 0 : Math.abs(number) >= 9.995 ? 1 : 2;
  return number.toFixed(digits).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
}
function roundBytes(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let i = 0;
  for (; Math.abs(bytes) >= 1023.5 && i + 1 < units.length; ++i) bytes /= 1024;
  return threeDigits(bytes) + " " + units[i];
}
function roundPercent(part, whole) {
  if (!(whole > 0)) return "0%";
  const share = 100 * part / whole;
  if (share > 0 && share < 0.1) return "<0.1%";
  if (share > 99.9 && share < 100) return ">99.9%";
  return threeDigits(share < 10 || share > 99 ? Math.round(share * 10) / 10 : Math.round(share)) + "%";
}
const grouped = (count) => String(count).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");

const counted = (count, what) => `${grouped(count)} ${what}${count === 1 ? "" : "s"}`;

// A rounded number carries a mark, and has the exact value as its title.
const about = (text, exact) => element("span", {class: "about", title: exact}, text);
const aboutTime = (ns) =>
  exactTime(ns) === roundTime(ns) ? element("span", {}, exactTime(ns)) : about(roundTime(ns), exactTime(ns));
const aboutShare = (ns, whole) => !ns ? element("span", {}, "0%")
  : ns === whole                      ? element("span", {}, "100%")
                                      : about(roundPercent(ns, whole), exactTime(ns) + " of " + exactTime(whole));
const aboutBytes = (bytes) =>
  Math.abs(bytes) < 1024 ? element("span", {}, bytes + " B") : about(roundBytes(bytes), grouped(bytes) + " bytes");

function announceProblem(text) {
  byId("problem").textContent = text;
  byId("problem").hidden = false;
}
