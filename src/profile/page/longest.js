// SPDX-License-Identifier: Apache-2.0
// The rows that took longest, and the time beside them in which nothing runs.

// Time in which nothing runs, as rows beside those of the ops: of a section, or of all.
function timeBeside(report, section) {
  const row = (name, ns, whole) => ({name: `(${name})`, total_ns: ns, wall: whole, isBeside: true, depth: 0, ratio: 1});
  const whole = report.overhead.total_ns,
        isNothing = (name) => name.startsWith("idle") || ["your code", "blocked", "not seen"].includes(name);
  if (section && section.thread) {
    const budget = report.wall_time.find(({of}) => of === section.thread);
    return budget
      ? Object.entries(budget.parts_ns).filter(([name]) => isNothing(name)).map(([name, ns]) => row(name, ns, whole))
      : [];
  }
  return [
    row("only your code", report.overhead.your_code_ns, whole),
    ...report.wall_time.filter(isGpu).map(
      (budget) => row(
        visible(budget.of) + " idle",
        Object.entries(budget.parts_ns).reduce((sum, [name, ns]) => sum + (name.startsWith("idle") ? ns : 0), 0),
        whole))
  ].filter(({total_ns: ns}) => ns > 0);
}
// The part of the wall time in which a call of a row was under way.
const underWay = (row, section) => row.isBeside ? row.total_ns : row.ratio * section.under_way_ns;
function shareCell(ns, whole) {
  return element(
    "span", {}, aboutShare(Math.round(ns), whole),
    element(
      "span", {class: "share", "aria-hidden": "true"},
      element("i", {style: `width:${Math.min(100, 100 * ns / whole)}%`})));
}
const placeOfRow = (row) => row.isBeside ? "" : !row.gpu_ns ? "host" : row.cpu_ns ? "host, GPU" : "GPU";
const kRows =
  "Total adds up all calls of a row, on the host and with the kernels that they launched, also calls beside each " +
  "other. Under way is the part of the wall time in which at least one was. Rows overlap, so that sums of either may " +
  "exceed the wall time.";

// The rows that most time is in, as far as a glance goes; all of them are in the last view.
function largestCard(report) {
  const sections = mainSections(report), whole = report.overhead.total_ns;
  const rows =
    [
      ...sections.flatMap(
        (section) =>
          section.rows
            .filter((row) => row.depth === 0 && !row.at_compile && row.total_ns > 0 && row.name !== "(between events)")
            .map((row) => ({...row, under: underWay(row, section)}))),
      ...timeBeside(report).map((row) => ({...row, under: row.total_ns}))
    ].sort((a, b) => b.under - a.under)
      .slice(0, 10);
  if (!rows.length || !whole) return null;
  return card(
    "What took longest",
    plainTable(
      "Outermost rows, and time beside them", ["", "On", "Calls", "Total, ms", "Under way"],
      rows.map(
        (row) =>
          [row.isBeside ? row.name
                        : element(
                            "button", {
                              type: "button",
                              class: "link",
                              title: `${row.name}\nA click selects the longest call`,
                              onclick: () => lookFor(row.name)
                            },
                            visible(row.short || row.name)),
           element("td", {class: "word"}, placeOfRow(row)),
           row.isBeside ? "" : (row.scaled_ns ? "~" : "") + grouped(row.calls), timeCell(row.total_ns),
           shareCell(row.under, whole)]),
      {class: "grows"}),
    element("p", {}, kRows),
    element(
      "p", {},
      element(
        "button", {
          type: "button",
          class: "link",
          onclick: () => {
            showView("ops");
            focusView();
          }
        },
        "All rows, sorted and filtered as you like")));
}
