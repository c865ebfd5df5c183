// SPDX-License-Identifier: Apache-2.0
// The Event Summary as a table that sorts and filters. Every number is the report's, to the nanosecond.
const opColumn = (title, key, why) =>
  ({title, why, value: (row) => row[key] || 0, show: (row, ns) => row.isBeside ? "" : exactMs(ns)});

function opColumns(rows, section, whole) {
  const has = (key) => rows.some((row) => row[key]);
  const scaled = (row, text) => row.scaled_ns ? "~" + text : text;
  return [
    {
      title: "Event",
      isWord: true,
      value: (row) => row.name,
      show: (row) => row.isBeside ? row.name
                                  : element(
                                      "button", {
                                        type: "button",
                                        class: "link",
                                        title: `${row.name}\nA click selects the longest call in the timeline`,
                                        onclick: () => lookFor(row.name)
                                      },
                                      row.at_compile ? row.name + " (at compile)" : row.short)
    },
    {
      title: "Calls",
      value: (row) => row.calls || 0,
      show: (row, calls) => row.isBeside ? "" : scaled(row, grouped(calls))
    },
    {
      ...opColumn("Total, ms", "total_ns", "Of all calls, also those beside each other"),
      show: (row, ns) => scaled(row, exactMs(ns))
    },
    {
      title: "Under way",
      why: "The part of the recording's wall time in which one of the row's calls was under way",
      value: (row) => underWay(row, section),
      show: (row, ns) => shareCell(ns, whole)
    },
    ...has("gpu_ns") ? [opColumn("CPU, ms", "cpu_ns"), opColumn("GPU, ms", "gpu_ns")] : [],
    opColumn("Not in rows below, ms", "self_ns", "The part of Total that none of the rows below it has"),
    opColumn("Min., ms", "min_ns"),
    opColumn("Max., ms", "max_ns"),
    opColumn("Ave., ms", "average_ns"),
    ...has("bytes") ? [{
      title: "GB/s",
      why: "Bytes that its ops must move at least, over its time",
      value: (row) => row.bytes && row.total_ns ? row.bytes / row.total_ns : 0,
      show: (row, rate) => rate ? about(threeDigits(rate), `${row.bytes} bytes`) : ""
    }]
                    : [],
    ...has("flops") ? [{
      title: "GFLOP/s",
      value: (row) => row.flops && row.total_ns ? row.flops / row.total_ns : 0,
      show: (row, rate) => rate ? about(threeDigits(rate), `${row.flops} operations`) : ""
    }]
                    : [],
    ...has("lost_ns") ? [opColumn("Above its least, ms", "lost_ns", "Beyond what the GPU would take at least for its bytes and operations")] : [],
  ];
}

let opsTable = null;

function showOps(section, name) {
  const rows = [
    ...section.rows.map((row) => ({...row, name: visible(row.name), short: visible(row.short || row.name)})),
    ...timeBeside(report, section)
  ];
  opsTable = new Table(`Events of ${name}`, opColumns(rows, section, report.overhead.total_ns), rows, {
    onRow: (made, row) => row.isBeside && made.classList.add("beside"),
    hidesCaption: true,
    onDraw: (count) => {
      byId("ops-count").textContent =
        count === rows.length ? `${grouped(count)} rows` : `${grouped(count)} of ${grouped(rows.length)} rows`;
    },
  });
  byId("rows").replaceChildren(opsTable.element);
  opsTable.filter(byId("ops-filter").value);
}

// The row of an op, in the first table that has it; its longest call in the timeline where it has no row.
function showRow(op) {
  const isExact = (row) => row.name === op, isLast = (row) => !row.isBeside && row.name.split("/").pop() === op;
  showView("ops");
  const of = byId("ops-of");
  for (const isRow of [isExact, isLast])
    for (let number = 0; number < of.options.length; ++number) {
      if (of.value !== String(number)) {
        of.value = number;
        of.dispatchEvent(new Event("change"));
      }
      byId("ops-filter").value = "";
      if (opsTable.goTo(isRow)) return;
    }
  if (of.options.length) of.value = 0, of.dispatchEvent(new Event("change"));
  lookFor(op);
}

async function writeOps(report) {
  const sections = [...report.merged, ...(await unpackJson("threads") || report.threads)];
  const names = sections.map((section) => section.thread ? visible(section.thread) : "all threads and GPUs");
  byId("ops-of").append(...names.map((name, number) => element("option", {value: number}, name)));
  byId("ops-of").addEventListener("change", () => showOps(sections[byId("ops-of").value], names[byId("ops-of").value]));
  byId("ops-filter").addEventListener("input", () => opsTable && opsTable.filter(byId("ops-filter").value));
  byId("ops-legend").textContent = kRows;
  if (sections.length)
    showOps(sections[0], names[0]);
  else
    byId("rows").append(element("p", {class: "empty"}, "Nothing ran while this was recorded, so there are no rows."));
}
