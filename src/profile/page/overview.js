// SPDX-License-Identifier: Apache-2.0
// The first view: where the time went in a sentence, as bars, and as tables that have it to the nanosecond.
const kOverheads = [
  ["computation_ns", "Computation", 0],
  ["framework_ns", "Framework overhead", 1],
  ["recording_ns", "Recording", 7],
  ["compile_ns", "Compiling", 3],
  ["your_code_ns", "Only your code", 4],
  ["not_seen_ns", "Not seen", 9],
];
// Colours of the uses of threads and GPUs; idle time is hatched too.
const kUses = {
  "ops": 0,
  "kernels": 0,
  "run, between ops": 1,
  "launch": 5,
  "wait": -1,
  "blocked": -1,
  "feed": 2,
  "fetch": 8,
  "copy": 6,
  "exposed copies": 6,
  "exposed fills": 8,
  "compile": 3,
  "recording": 7,
  "not seen": 9,
  "your code": 4,
};
// The host's work while a GPU was idle.
const kIdle = {
  "inside a launch": "between two kernels of one launch",
  "between kernels": "between kernels that were queued",
  "launch": "while the host launched",
  "feed": "while values were handed in",
  "fetch": "while values were handed out",
  "sync": "while the host waited for it",
  "blocked": "while the host was blocked",
  "compile": "while a program was made",
  "recording": "while the recorder worked",
  "your code": "while your code ran",
  "not seen": "for what was not seen",
};
const colorOfUse = (name) =>
  name.startsWith("idle") || kUses[name] === -1 ? "var(--idle)" : `var(--use-${kUses[name] ?? 7})`;

function bar(parts, whole) {
  return element(
    "div", {class: "bar", "aria-hidden": "true"},
    ...parts.map(({name, ns, color}) => element("span", {
                   class: color === "var(--idle)" && "idle",
                   title: `${name}: ${exactTime(ns)}, ${roundPercent(ns, whole)}`,
                   style: `flex:${ns / whole} 0 0;background-color:${color}`
                 })));
}
function swatched({name, color}) {
  return element(
    "span", {},
    element("span", {class: color === "var(--idle)" ? "swatch idle" : "swatch", style: `background-color:${color}`}),
    name);
}
function partsTable(caption, parts, whole) {
  return plainTable(
    caption, ["", "ms", "Of wall time"], parts.map((part) => [swatched(part), timeCell(part.ns), aboutShare(part.ns, whole)]));
}

// Rows of everything: merged where there are several threads.
const mainSections = (report) => report.merged.length ? report.merged : report.threads;

function writeSentence(report, to) {
  const {overhead, steps} = report, whole = overhead.total_ns, text = [];
  const bold = (...children) => element("b", {}, ...children);
  if (!(whole > 0) && !report.records.received) {
    to.append("This recording is empty: nothing of it can be shown.");
    return;
  }
  if (!(whole > 0)) {
    to.append("No time went by while this was recorded.");
    return;
  }
  const found = report.findings;
  if (steps && steps.count > 1) {
    text.push("In ", bold(aboutTime(whole)), ` there are ${grouped(steps.count)} steps. `);
    const limit = (side) => side ? [": the ", bold(side), " is its limit"] : [];
    if (hasLengths(report)) {
      text.push(
        "On average a step takes ", bold(aboutTime(found.base_ns)), " until its work on GPUs has ended, ",
        bold(aboutTime(found.host_base_ns)), " on the host alone", ...limit(found.limit), "; the median step takes ",
        aboutTime(found.step_ns), ", ", aboutTime(found.host_step_ns), " on the host",
        ...found.limit_of_median === found.limit ? [] : limit(found.limit_of_median));
    } else
      text.push("The median step takes ", bold(aboutTime(steps.p50_ns)), " on the host");
    text.push(". Of the wall time ");
  } else
    text.push("Of ", bold(aboutTime(whole)), " of wall time ");
  const parts = kOverheads.map(([key, name]) => ({name: name.toLowerCase(), ns: overhead[key]}))
                  .filter((part) => part.ns > 0)
                  .sort((a, b) => b.ns - a.ns);
  parts.slice(0, 3).filter((part, i) => !i || part.ns > 0.005 * whole).forEach((part, i, list) => {
    text.push(
      i === 0                 ? ""
        : i + 1 < list.length ? ", "
                              : " and ",
      bold(aboutShare(part.ns, whole)), " was ", part.name);
  });
  const gpu = report.wall_time.find(isGpu);
  if (gpu) {
    const all = wholeOf(gpu),
          idle = Object.entries(gpu.parts_ns).filter(([name]) => name.startsWith("idle")).sort((a, b) => b[1] - a[1]);
    const idleNs = idle.reduce((sum, [, ns]) => sum + ns, 0);
    text.push("; ", visible(gpu.of), " ran kernels for ", bold(aboutShare(gpu.parts_ns.kernels || 0, all)));
    if (idle.length)
      text.push(
        " and was idle for ", bold(aboutShare(idleNs, all)), ", most of that ",
        kIdle[idle[0][0].replace(/^idle: */, "")] || idle[0][0]);
  }
  to.append(...text, ".");
}

const wholeOf = ({parts_ns: parts}) => Object.values(parts).reduce((a, b) => a + b, 0);
// Whether findings have timed steps until their work on GPUs has ended.
const hasLengths = ({findings: found, wall_time: budgets}) => found && found.step_ns && budgets.some(isGpu);
const isGpu = ({of}) => /GPU \d+$/.test(of);

function budgetElement(budget) {
  const whole = wholeOf(budget);
  const parts = Object.entries(budget.parts_ns).map(([name, ns]) => ({name, ns, color: colorOfUse(name)}));
  return element(
    "div", {class: "budget"}, element("h3", {}, visible(budget.of), aboutTime(whole)), bar(parts, whole),
    partsTable(element("span", {class: "unseen"}, `Wall time of ${visible(budget.of)}`), parts, whole));
}

function card(title, ...children) {
  return element("section", {class: "card"}, element("h2", {}, title), ...children);
}

// What the parts mean, of those that are there.
const kMeanings = {
  "run, between ops": "a run, and none of its ops.",
  "launch": "the thread hands work to a GPU.",
  "wait": "it waits for a GPU, or for the other threads of a parallel region.",
  "blocked": "it waits for another thread, in a lock, a sleep or a read.",
  "idle or not recorded": "nothing is known of it then.",
  "not seen": "a run that was under way when the recording began.",
  "your code": "it is in no op, call or wait that was recorded. A GPU may be busy meanwhile.",
  "exposed copies": "copies while no kernel ran.",
  "exposed fills": "fills while nothing else ran.",
  "idle: between kernels": "the next one was queued already.",
  "idle: inside a launch": "between two kernels of one launch.",
  "idle: launch": "the next kernel was being launched, or had been and not begun yet.",
};
function wordsOf(budgets) {
  const has = (name) => budgets.some(({parts_ns: parts}) => parts[name]);
  const words = Object.entries(kMeanings).filter(([name]) => has(name)).map(
    ([name, text]) => `${name[0].toUpperCase()}${name.slice(1)}: ${text}`);
  const isOther = (name) => name.startsWith("idle: ") && !kMeanings[name];
  if (budgets.some(({parts_ns: parts}) => Object.keys(parts).some(isOther)))
    words.push("Other words behind idle: what the thread that launches next was at.");
  return words;
}

function budgetsCard(report) {
  const kFirst = 8;
  const list = element("div", {class: "columns"}),
        unknown = (budget) => (budget.parts_ns["idle or not recorded"] || 0) > 0.9 * wholeOf(budget),
        all = report.wall_time.slice().sort((a, b) => a.is_worker - b.is_worker || unknown(a) - unknown(b));
  const known = Math.min(kFirst, all.filter((budget) => !unknown(budget)).length || kFirst);
  const show = (count) => list.replaceChildren(...all.slice(0, count).map(budgetElement));
  show(known);
  const more = element(
    "button", {
      type: "button",
      class: "link",
      onclick: () => {
        show(Infinity);
        more.remove();
      }
    },
    `Show ${grouped(all.length - known)} more, which were idle or of which nothing is known`);
  return card(
    "Wall time of every thread and GPU", list, all.length > known ? element("p", {}, more) : null,
    element(
      "p", {},
      "The parts of each add up to the wall time. " + wordsOf(all).join(" ")));
}

function otherCards(report) {
  const cards = [], {memcpy, records} = report;
  if (memcpy.all.calls)
    cards.push(card(
      "Copies",
      plainTable(
        "From and to GPUs", ["", "Calls", "ms"],
        Object.entries(memcpy).map(([name, {calls, total_ns}]) => [name, grouped(calls), timeCell(total_ns)]))));
  if (report.held.length)
    cards.push(card(
      "Memory",
      plainTable(
        "Held while the recording went on", ["", "At start", "Most", "At end"],
        report.held.map(
          (held) =>
            [`${held.process ? visible(held.process) + " " : ""}${held.device < 0 ? "host" : "GPU " + held.device}: ${
               visible(held.what)}`,
             ...[held.start_bytes, held.most_bytes, held.end_bytes].map(
               (bytes) => element("td", {"data-value": bytes}, aboutBytes(bytes)))]))));
  if (report.memory.length)
    cards.push(card(
      "Programs",
      plainTable(
        "What each holds of its device", ["", "Bytes"],
        report.memory.slice(0, 200).map(
          (one) =>
            [`${one.is_inside ? "\u2003" : visible(one.of) + ": "}${visible(one.what)}`,
             element("td", {"data-value": one.bytes}, aboutBytes(one.bytes))]))));
  if (report.compiling.length)
    cards.push(card(
      "Compiling",
      plainTable(
        "What took longest", ["", "Calls", "ms"],
        report.compiling.map((part) => [visible(part.name), grouped(part.calls), timeCell(part.total_ns)]))));
  if (report.instants.length)
    cards.push(card(
      "Moments",
      plainTable(
        "By name, from the start of the recording", ["", "Count", "First, ms", "Last, ms"],
        report.instants.slice(0, 200).map(
          (one) => [visible(one.name), grouped(one.count), timeCell(one.first_ns), timeCell(one.last_ns)]))));
  if (report.range_arguments.length)
    cards.push(card(
      "Arguments of ranges",
      plainTable(
        "Summed up", ["", "Count", "Values", "Least", "Most", "Total"],
        report.range_arguments.slice(0, 200).map(
          (one) =>
            [visible(`${one.range}: ${one.name}`), grouped(one.count), grouped(one.values),
             ...[one.least, one.most, one.total].map((value) => value === undefined ? "" : String(value))]))));
  const lost = records.dropped + records.timeless + records.outside + records.unattributed;
  cards.push(card(
    "Completeness",
    plainTable(
      "Records", ["", "Count"],
      ["received", "dropped", "timeless", "outside", "unattributed", ...records.unattributed ? ["unlaunched"] : []].map(
        (key) =>
          [{
            timeless: "without a time",
            outside: "outside of the window",
            unattributed: "kernels of no op",
            unlaunched: "of those, with no launch recorded"
          }[key] ||
             key,
           element(
             "td", {"data-value": records[key], class: key !== "received" && records[key] && "warn"},
             grouped(records[key]))])),
    records.unattributed ? plainTable(
                             "Time of kernels and replays, added up", ["", "ms", "Of all"],
                             [
                               ["of no op", timeCell(records.unattributed_ns),
                                aboutShare(records.unattributed_ns, records.gpu_ns)],
                               ["all", timeCell(records.gpu_ns), "100%"]
                             ])
                         : null,
    ...report.not_seen.map(
      (note) => element(
        "p", {class: "warn"}, `Not seen: ${visible(note.what)}${note.count ? ` (${grouped(note.count)})` : ""}`)),
    records.unattributed
      ? element(
          "p", {},
          "Kernels of no op: the call that launched them was before the recording, or is in no op, as that of a CUDA " +
            "graph. Here times of kernels are added up: together they exceed the time in which any kernel ran where " +
            "kernels ran beside each other.")
      : null,
    !lost && !report.not_seen.length ? element("p", {}, "Nothing is known to be missing.") : null));
  return cards;
}

function writeOverview(report) {
  writeSentence(report, byId("sentence"));
  const {overhead} = report, whole = overhead.total_ns;
  const parts = kOverheads.map(([key, name, use]) => ({name, ns: overhead[key], color: `var(--use-${use})`}));
  const summary = card(
    "Where the time went", bar(parts.filter(({ns}) => ns > 0), whole),
    partsTable("Wall time", [...parts, {name: "Total", ns: whole, color: "transparent"}], whole),
    element(
      "p", {},
      "Computation: a kernel was under way. Framework overhead: anything else of the framework was, on any thread. " +
        "Only your code: neither, so that nothing but your code can have run."),
    report.recording_cost_ns
      ? element("p", {}, "Recording cost the threads of the host at most ", aboutTime(report.recording_cost_ns), ".")
      : null,
    report.replays ? element(
                       "p", {},
                       `${grouped(report.replays.count)} replays of graphs, ${
                         grouped(report.replays.stamped)} of them stamped in full; rows with ~ are scaled from those.`)
                   : null);
  const cards = otherCards(report);
  const largest = largestCard(report);
  byId("cards").append(
    ...
      [report.steps && report.steps.count > 1 ? stepsCard(report) : null, findingsCard(report),
       largest ? element("div", {class: "columns"}, summary, largest) : summary,
       report.wall_time.length ? budgetsCard(report) : null, element("div", {class: "columns"}, ...cards)]
        .filter(Boolean));
}
