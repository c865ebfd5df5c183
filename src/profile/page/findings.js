// SPDX-License-Identifier: Apache-2.0
// The findings of the report, where it has some; nothing otherwise. report.findings:
//   {abstained: why nothing is said or "", replay_error, step_ns, steps, silent: [{kind, why}],
//    list: [{title, text, gain_ns: [low, high], share: [low, high] of the step, change, op, scope, line,
//            evidence: [{name, track, track_number, start_ns, end_ns}] from the start of the recording}]}
function findingsCard(report) {
  const found = report.findings;
  if (!found) return null;
  const rows = (found.list || []).map((finding) => {
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
            "p", {}, "Gain: about ", aboutTime(finding.predicted_ns), ` of a step (${roundPercent(finding.predicted_share, 1)}); `,
            ...asInterval(finding.gain_ns, aboutTime))
        : null,
      finding.text ? element("p", {}, visible(finding.text)) : null,
      ...facts.map(([name, text]) => element("p", {}, element("b", {}, name + ": "), visible(String(text)))),
      places.length ? element("p", {}, element("b", {}, "Evidence: "), ...places) : null);
  });
  const silent = (found.silent || []).map(({kind, why}) => `${kind}: ${why}`).join("; ");
  return card(
    "Findings", rows.length ? element("ol", {class: "findings"}, ...rows) : null,
    found.abstained
      ? element("p", {class: "warn"}, `Nothing is said about gains: ${visible(found.abstained)}`)
      : rows.length ? null : element("p", {}, "Nothing that was looked for costs 1% of a step."),
    silent ? element("p", {}, `Not looked for: ${visible(silent)}`) : null);
}

function asInterval([low, high], show) {
  return low === high ? [show(high)] : [show(low), " to ", show(high)];
}

function showEvidence({start_ns: start, end_ns: end, track_number: number}) {
  showView("timeline");
  if (!timeline) return;
  const room = Math.max(1000, (end - start) * 0.2);
  timeline.lookAt(start - room, end + room);
  const tracks = timeline.lines.filter((line) => line.track).map((line) => line.track);
  const own = tracks.filter((track) => track.number === number);
  timeline.select({from: start, to: end, tracks: own.length ? own : tracks});
}
