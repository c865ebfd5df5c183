// SPDX-License-Identifier: Apache-2.0
// The findings of the report, where it has some; nothing otherwise. A finding:
//   {title, text, gain_ns: [low, high], share: [low, high] of the step, change, op, scope, line,
//    evidence: [{name, start_ns, end_ns}] from the start of the recording}
function findingsCard(report) {
  const findings = report.findings || [], abstained = report.findings_abstained;
  if (!findings.length && !abstained) return null;
  const rows = findings.map((finding) => {
    const places = (finding.evidence || [])
                     .slice(0, 20)
                     .map(
                       (place, k) =>
                         [k ? " " : "",
                          element(
                            "button", {type: "button", class: "link", onclick: () => showEvidence(place)},
                            `${visible(place.name || "here")} at ${roundTime(place.start_ns)}`)])
                     .flat();
    const facts = [
      ["Op", finding.op], ["Scope", finding.scope], ["Line", finding.line], ["Change", finding.change]
    ].filter(([, text]) => text);
    return element(
      "li", {}, element("h3", {}, visible(finding.title || "")),
      finding.gain_ns
        ? element(
            "p", {}, "Gain: ", aboutTime(finding.gain_ns[0]), " to ", aboutTime(finding.gain_ns[1]),
            finding.share ? ` (${roundPercent(finding.share[0], 1)} to ${roundPercent(finding.share[1], 1)} of a step)`
                          : "")
        : null,
      finding.text ? element("p", {}, visible(finding.text)) : null,
      ...facts.map(([name, text]) => element("p", {}, element("b", {}, name + ": "), visible(String(text)))),
      places.length ? element("p", {}, element("b", {}, "Evidence: "), ...places) : null);
  });
  return card(
    "Findings", rows.length ? element("ol", {class: "findings"}, ...rows) : null,
    abstained ? element("p", {class: "warn"}, `Nothing is said about gains: ${visible(abstained)}`) : null);
}

function showEvidence({start_ns: start, end_ns: end}) {
  showView("timeline");
  if (!timeline) return;
  const room = Math.max(1000, (end - start) * 0.2);
  timeline.lookAt(start - room, end + room);
  timeline.select(
    {from: start, to: end, tracks: timeline.lines.filter((line) => line.track).map((line) => line.track)});
}
