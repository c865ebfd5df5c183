// SPDX-License-Identifier: Apache-2.0
// The findings of the report, where it has some; nothing otherwise. docs/reference/findings.md has what stands in
// report.findings; times of evidence count from the start of the recording.
function findingsCard(report) {
  const found = report.findings;
  if (!found) return null;
  const fact = (name, ...children) => element("p", {}, element("b", {}, name + ": "), ...children);
  const rows = (found.list || [])
                 .map(
                   (finding) => element(
                     "li", {},
                     element(
                       "h3", {}, visible(finding.title || ""), " ",
                       element("small", {title: "The kind, as in JSON and in the manual"}, finding.kind || "")),
                     gainOf(finding, found), finding.effect ? fact("Steps", asTold(finding.effect)) : null,
                     finding.bound ? fact("Limit", asTold(finding.bound)) : null,
                     finding.text ? element("p", {}, asTold(finding.text)) : null,
                     ...(finding.parts || [])
                       .map(
                         (part) => element(
                           "p", {}, element("b", {}, `In the same steps: ${visible(part.title)}, about `),
                           aboutTime(part.predicted_ns), " of it. ", asTold(part.text))),
                     finding.op ? fact("Op", ...opLinks(finding.op)) : null,
                     ...[["Operands", finding.operands], ["Scope", finding.scope], ["Line", finding.line]]
                       .filter(([, text]) => text)
                       .map(([name, text]) => fact(name, visible(String(text)))),
                     finding.change ? fact("Change", visible(finding.change)) : null, evidenceOf(finding)));
  const silent = (found.silent || []).map(({title, why}) => `${title} (${why})`).join("; ");
  return card(
    "Findings", found.about ? element("p", {}, asTold(found.about) + ".") : null,
    rows.length ? element("ol", {class: "findings"}, ...rows) : null,
    found.abstained ? element("p", {class: "warn"}, `Nothing is said about gains: ${visible(found.abstained)}`)
      : rows.length ? null
                    : element("p", {}, "Nothing that was looked for costs 1% of a step."),
    found.no_lines ? element("p", {}, `No finding names a line: ${found.no_lines}.`) : null,
    found.no_shapes ? element("p", {}, `No finding names shapes: ${found.no_shapes}.`) : null,
    rows.length ? element(
                    "p", {},
                    "Sentences round to three digits. Gains, and steps before and after, are averages over the steps " +
                      "that are named; the JSON report has them to the nanosecond.")
                : null,
    silent ? element("p", {}, `Not looked for: ${visible(silent)}.`) : null);
}

// Times of the program's texts in the page's unit.
const asTold = (text) => visible(text).replace(/(\d) us\b/g, "$1 \u00b5s").replace("->", "\u2192");

// To the op's row, and to its longest call.
function opLinks(op) {
  const link = (text, title, onclick) => element("button", {type: "button", class: "link", title, onclick}, text);
  return [
    link(visible(op), "A click shows its row among all", () => showRow(visible(op))), " (",
    link("in the timeline", "A click selects the longest call", () => lookFor(visible(op))), ")"
  ];
}

function gainOf({predicted_ns: ns, predicted_share: share, gain_ns: [low, high]}, found) {
  return element(
    "p", {}, element("b", {}, "Gain: "), "about ", aboutTime(ns), ` (${roundPercent(share, 1)}) of `,
    ...found.base_ns ? ["the average step of ", aboutTime(found.base_ns)] : ["a step"],
    ", between ", aboutTime(low), " and ", aboutTime(high));
}

// By name how often and how much is lost, and some of the spans, which a click selects.
function evidenceOf({evidence = [], evidence_kinds: kinds = []}) {
  const place = (one) => element(
    "button", {
      type: "button",
      class: "link",
      title: `${one.name}\n${roundTime(one.end_ns - one.start_ns)} long, at ${roundTime(one.start_ns)}`,
      onclick: () => showEvidence(one)
    },
    "\u2248 " + roundTime(one.lost_ns) + (one.step ? ` in step ${one.step}` : ""));
  const first = kinds.length ? kinds[0].is : "", isOne = first && kinds.every(({is}) => is === first);
  const rows = kinds.map(
    ({name, count, lost_ns: ns, is}, k) =>
      [visible(name) + (is && !isOne ? `: ${is}` : ""), grouped(count), about(roundTime(ns), exactTime(ns)),
       element(
         "td", {class: "word"},
         ...evidence.filter((one) => one.kind === k).flatMap((one, n) => [n ? ", " : "", place(one)]))]);
  return rows.length
    ? plainTable(
        `Where it is lost${isOne ? ` (${first})` : ""}: a click selects the span`,
        ["Name", "Times", "Lost together", "At some of them"], rows)
    : null;
}

function showEvidence({span, start_ns: start, end_ns: end}) {
  showView("timeline");
  if (!timeline) return;
  const room = Math.max(1000, end - start);
  timeline.lookAt(start - room, end + room);
  timeline.goTo(span);
}

// The side that the average step waits for: of the findings, or whether GPUs are busy for most of the time.
function limitOf({findings, wall_time: budgets}) {
  if (findings && findings.limit) return findings.limit;
  const busy =
    budgets.filter(({of}) => /GPU \d+$/.test(of)).map((budget) => (budget.parts_ns.kernels || 0) / wholeOf(budget));
  return Math.max(0, ...busy) >= 0.5 ? "GPU" : "host";
}
