// SPDX-License-Identifier: Apache-2.0
// Facts about the selected span, and the sums over a selected stretch of time.

// Times of the trace are exact only where nothing was rounded.
function timeOfTrace(trace, ns) {
  return trace.quantum > 1 ? "\u2248 " + exactTime(ns) : exactTime(ns);
}

// Bytes or operations per second.
const rateOf = (count, ns, unit) =>
  ns > 0 && count > 0 ? about(`${threeDigits(count / ns)} ${unit}`, `${count} in ${exactTime(ns)}`) : "";

const msOfTrace = (trace, ns) => (trace.quantum > 1 ? "\u2248 " : "") + exactMs(Math.max(0, ns));

function facts(rows) {
  return element(
    "table", {class: "facts"},
    element(
      "tbody", {},
      ...rows.filter(([, value]) => value !== "" && value !== null && value !== undefined)
        .map(([name, value]) => element("tr", {}, element("th", {scope: "row"}, name), element("td", {}, value)))));
}

function showSelection(view) {
  const to = byId("details");
  if (view.area) return showArea(view, to);
  if (view.selected < 0) {
    return to.replaceChildren(
      element("h2", {}, "Nothing is selected"),
      element(
        "p", {},
        "Click a span, or drag over a stretch of time for the sums of what happened in it. W A S D zoom and move, " +
          "F fits what is selected, ? lists all keys."));
  }
  showSpan(view, view.selected, to);
}

function spanLink(view, span) {
  return element(
    "button", {type: "button", class: "link", title: view.trace.name(span), onclick: () => view.goTo(span)},
    view.trace.short(span));
}

// The number of the step in which something began, or was launched; only where all steps are listed.
function stepAt(ns) {
  const {each, number, start_ns: starts, ns: lengths} = report.steps ? report.steps.shown : {};
  const k = each === 1 ? lowerBound(0, starts.length, (k) => starts[k] > ns) - 1 : -1;
  return k >= 0 && ns < starts[k] + lengths[k] ? number[k] : "";
}

async function showSpan(view, span, to) {
  const {trace} = view, {sites, strings} = trace, site = trace.site[span],
        text = (column) => strings[sites[column][site]], time = (ns) => timeOfTrace(trace, ns);
  const track = trace.trackOf(span), inside = insideOf(trace, span), duration = trace.duration[span];
  const around = [];
  for (let parent = trace.parent[span]; parent >= 0 && around.length < 12; parent = trace.parent[parent])
    around.unshift(parent);
  const cause = trace.causeOf ? trace.causeOf[span] : -1, effects = trace.effectsOf(span);
  const bytes = sites.bytes[site], flops = sites.flops[site];
  const mine = facts([
    ["Duration", time(duration)],
    ["Of that itself", inside ? time(Math.max(0, duration - inside)) : ""],
    ["Start", time(trace.start[span])],
    ["End", time(trace.end(span))],
    ["Kind", trace.kind(span)],
    ["Step", stepAt(trace.start[cause >= 0 ? cause : span])],
    [
      "On",
      [view.lines.find((line) => line.head && lineIsOf(view, line, track))?.head, track.name].filter(Boolean).join(
        " · ")
    ],
    ["Op", text("op")],
    ["Scope", text("scope")],
    ["Instance", text("instance")],
    ["Ran as", text("kernel") === trace.name(span) ? "" : text("kernel")],
    ["Operands", text("operands")],
    ["Grid", text("launch")],
    ["Copy", text("copy")],
    ["Bytes", bytes > 0 ? element("span", {}, aboutBytes(bytes), " ", rateOf(bytes, duration, "GB/s")) : ""],
    [
      "Operations",
      flops > 0
        ? element(
            "span", {}, about(threeDigits(flops / 1e9) + " G", String(flops)), " ", rateOf(flops, duration, "GFLOP/s"))
        : ""
    ],
  ]);
  const links = facts([
    [
      "Inside of",
      around.length ? element("span", {}, ...around.flatMap((i, k) => [k ? " \u203a " : "", spanLink(view, i)])) : ""
    ],
    ["Started by", cause >= 0 ? spanLink(view, cause) : ""],
    [
      "Started",
      effects.length
        ? element(
            "span", {}, spanLink(view, effects[0]),
            effects.length > 1 ? ` and ${grouped(effects.length - 1)} more, ${
                                   time([...effects].reduce((sum, i) => sum + trace.duration[i], 0))} in all`
                               : "")
        : ""
    ],
    ["Reads from", flowLinks(view, trace.flows.filter(([, b]) => b === span).map(([a]) => a))],
    ["Read by", flowLinks(view, trace.flows.filter(([a]) => a === span).map(([, b]) => b))],
  ]);
  const same = facts(callsOf(trace, span).map(([name, value]) => [name, value]));
  const name = trace.name(span);
  to.replaceChildren(
    element("h2", {}, name.length > 600 ? name.slice(0, 600) + "\u2026" : name),
    ...view.note ? [element("p", {class: "note"}, view.note)] : [], mine, links, same);
  to.scrollTop = 0;
  const more = trace.meta.arguments.length ? await trace.argumentsOf(span) : [];
  if (view.selected === span && more.length) to.append(facts(more.map(([name, value]) => [name, String(value)])));
}

function lineIsOf(view, head, track) {
  const at = view.lines.indexOf(head), mine = view.lines.findIndex((line) => line.track === track);
  return mine > at && !view.lines.slice(at + 1, mine).some((line) => line.head);
}
function flowLinks(view, spans) {
  return spans.length ? element(
                          "span", {}, ...spans.slice(0, 8).flatMap((i, k) => [k ? ", " : "", spanLink(view, i)]),
                          spans.length > 8 ? ` and ${grouped(spans.length - 8)} more` : "")
                                           : "";
}

// The time of the spans directly inside.
function insideOf(trace, span) {
  const track = trace.trackOf(span), end = track.first + track.count;
  let sum = 0;
  for (let i = span + 1; i < end && trace.start[i] <= trace.end(span); ++i)
    if (trace.parent[i] === span) sum += trace.duration[i];
  return sum;
}

// All calls of that name.
function callsOf(trace, span) {
  const label = trace.label(span);
  let count = 0, sum = 0, least = Infinity, most = 0, shorter = 0;
  for (let i = 0; i < trace.size; ++i) {
    if (trace.label(i) !== label) continue;
    const ns = trace.duration[i];
    ++count, sum += ns, least = Math.min(least, ns), most = Math.max(most, ns);
    if (ns < trace.duration[span]) ++shorter;
  }
  const time = (ns) => timeOfTrace(trace, ns);
  if (count < 2) return [["Calls", "the only one of its name"]];
  return [
    ["Calls", grouped(count)], ["In all", time(sum)], ["Average", "\u2248 " + roundTime(sum / count)],
    ["Least", time(least)], ["Most", time(most)], ["Longer than", `\u2248 ${roundPercent(shorter, count)} of them`]
  ];
}

// Sums by name over the spans of some tracks in a stretch of time, as far as they lie in it.
function sumsOf(trace, {from, to, tracks}) {
  const sums = new Map();
  const of = (label) => {
    if (!sums.has(label))
      sums.set(label, {name: trace.strings[label], short: trace.shorts[label], count: 0, total: 0, self: 0});
    return sums.get(label);
  };
  for (const track of tracks) {
    for (const row of track.rows) {
      let k = lowerBound(row.from, row.to, (k) => trace.start[trace.order[k]] >= from);
      if (k > row.from && trace.end(trace.order[k - 1]) > from) --k;
      for (; k < row.to && trace.start[trace.order[k]] < to; ++k) {
        const i = trace.order[k], ns = Math.min(to, trace.end(i)) - Math.max(from, trace.start[i]);
        const sum = of(trace.label(i)), parent = trace.parent[i];
        sum.count += 1, sum.total += ns, sum.self += ns;
        if (parent >= 0) of(trace.label(parent)).self -= ns;
      }
    }
  }
  return [...sums.values()].filter((sum) => sum.count);
}

function showArea(view, to) {
  const {trace, area} = view, width = area.to - area.from, rows = sumsOf(trace, area);
  const count = rows.reduce((sum, row) => sum + row.count, 0);
  const column = (title, key) => ({title, value: (row) => row[key], show: (row, ns) => msOfTrace(trace, ns)});
  const table = new Table(
    "Sums of the selection",
    [
      {
        title: "Name",
        isWord: true,
        value: (row) => row.name,
        show: (row) => element("button", {type: "button", class: "link", onclick: () => lookFor(row.name)}, row.short)
      },
      {title: "Count", value: (row) => row.count, show: (row, n) => grouped(n)},
      column("Total, ms", "total"),
      {...column("Self, ms", "self"), why: "In none of the spans inside of it"},
      {title: "Self, of the stretch", value: (row) => row.self, show: (row, ns) => aboutShare(Math.max(0, ns), width)},
    ],
    rows, {hidesCaption: true, sortBy: 3, first: 100});
  table.element.style.flex = "1 0 100%";
  to.replaceChildren(
    element(
      "h2", {}, `Selected: ${area.name || ""} `, about(roundTime(width), exactTime(width)),
      ` from \u2248 ${roundTime(area.from)}, ${grouped(count)} spans on ${grouped(area.tracks.length)} ${
        area.tracks.length === 1 ? "track" : "tracks"}`),
    table.element);
  to.scrollTop = 0;
}
