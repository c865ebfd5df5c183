// SPDX-License-Identifier: Apache-2.0
// Looking for names in every view: spans that have all the words in their name, op, scope or kernel stand out. A row of
// a table leads to its longest call, and the search stays as it is.
// A row's name says more than its spans do: "lstm_cell/matmul", "group: mul #2".
function lookFor(name) {
  showView("timeline");
  focusView();
  if (!timeline) return;
  const {trace} = timeline, plain = name.replace(/ #\d+$/, "");
  let found = null;
  for (const text of [name, plain, plain.split("/").pop(), plain.split("/")[0]]) {
    found = sitesOf(trace, text);
    if (found.labels.size) break;
  }
  const isOne = found.labels.has(found.exact) ? (i) => trace.label(i) === found.exact
                                              : (i) => found.matches[trace.site[i]];
  let longest = -1, count = 0;
  for (let i = 0; i < trace.size; ++i)
    if (isOne(i) && ++count && (longest < 0 || trace.duration[i] > trace.duration[longest])) longest = i;
  if (longest >= 0)
    timeline.goTo(longest, count > 1 ? `The longest of ${grouped(count)}. Point and comma go to the others.` : "");
}

// The sites that have all words of a text in their names, their labels, and the text among those.
function sitesOf(trace, text) {
  const {sites, strings} = trace, plain = text.trim().toLowerCase(), words = plain.split(/\s+/).filter(Boolean),
        lower = trace.lower ||= strings.map((string) => string.toLowerCase()),
        matches = new Uint8Array(trace.labelOfSite.length), labels = new Set();
  trace.labelOfSite.forEach((label, site) => {
    const all = [lower[label], lower[sites.op[site]], lower[sites.scope[site]], lower[sites.kernel[site]]].join("\n");
    if (lower[label] !== plain && !words.every((word) => all.includes(word))) return;
    matches[site] = 1;
    labels.add(label);
  });
  return {matches, labels, exact: strings.indexOf(text)};
}

function search() {
  const text = byId("search").value;
  if (opsTable) byId("ops-filter").value = text, opsTable.filter(text);
  if (sandwich) sandwich.table.filter(text);
  markFound();
}

function markFound() {
  const text = byId("search").value, found = byId("found");
  byId("search-key").hidden = Boolean(text.trim());
  if (!timeline) return;
  const {trace} = timeline;
  timeline.matches = null;
  timeline.matchedLabels = new Set();
  found.textContent = "";
  if (text.trim()) {
    const {matches, labels} = sitesOf(trace, text);
    let count = 0, ns = 0;
    for (let i = 0; i < trace.size; ++i)
      if (matches[trace.site[i]]) ++count, ns += trace.duration[i];
    timeline.matches = matches;
    timeline.matchedLabels = labels;
    found.textContent = count ? `${grouped(count)}, \u2248 ${roundTime(ns)}` : "none";
  }
  timeline.redraw();
  for (const view of [flame, sandwich && sandwich.callers, sandwich && sandwich.callees])
    if (view) view.draw();
}

function endSearch() {
  if (!byId("search").value) return;
  byId("search").value = "";
  search();
}

function goToFound(step) {
  if (!timeline) return;
  const span = timeline.next(step);
  if (span >= 0) timeline.goTo(span);
}

function listenToSearch() {
  const input = byId("search");
  input.addEventListener("input", search);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      if (currentView() !== "timeline" && currentView() !== "ops") showView("timeline");
      goToFound(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape") {
      endSearch();
      input.blur();
      focusView();
    } else
      return;
    event.preventDefault();
    event.stopPropagation();
  });
}
