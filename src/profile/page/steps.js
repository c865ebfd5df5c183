// SPDX-License-Identifier: Apache-2.0
// The steps of the loop: bars over their numbers, and their medians.

// How high bars are. "usual": up to a few medians, where some step takes longer than that; those are cut.
const kScales = {
  usual: ["cut at", (ns, top) => Math.min(1, ns / top)],
  all: ["up to", (ns, top) => ns / top],
  log: ["logarithmic, up to", (ns, top, least) => 0.06 + 0.94 * Math.log(ns / least) / Math.max(1e-9, Math.log(top / least))]
};
const kMostMedians = 4;

// Every step as a bar: its time on the host, and above that until its work on GPUs has ended, as findings time it.
function stepBars({steps, findings: found}) {
  const {number: numbers, start_ns: starts, ns} = steps.shown, first = found ? found.first_step : 1,
                                            lengths = found && found.step_lengths_ns || [];
  const until = numbers.map((number, k) => Math.max(1, ns[k], lengths[number - first] || 0));
  const isOut = (number) => Boolean(found && found.steps && (number < first || number >= first + found.steps)),
        isWarm = (number) => Boolean(found && number <= found.warm_up_steps);
  const sorted = until.slice().sort((a, b) => a - b), median = sorted[sorted.length >> 1],
        most = sorted.at(-1), isWide = most > kMostMedians * median;
  const bars = numbers.map((number, k) => {
    const text = `step ${number}: \u2248 ${roundTime(ns[k])} on the host` +
      (until[k] > ns[k] ? `, \u2248 ${roundTime(until[k])} until its work on GPUs has ended` : "") +
      (isWarm(number)      ? ", warming up"
         : isOut(number) ? ", left out of findings"
                         : "");
    return element(
      "button", {
        type: "button",
        class: isOut(number) && "out",
        title: text,
        "aria-label": text,
        tabindex: k ? -1 : 0,
        onclick: () => showStep(number, starts[k], starts[k] + ns[k])
      },
      element("i", {}, element("i", {style: `height:${100 * Math.min(1, ns[k] / until[k])}%`})));
  });
  const told = element("span", {}), scale = (name) => {
    const [words, heightOf] = kScales[name], top = name === "usual" ? kMostMedians * median : most;
    let cut = 0;
    bars.forEach((bar, k) => {
      const isCut = until[k] > top;
      cut += isCut;
      bar.classList.toggle("cut", isCut);
      bar.firstChild.style.height = 100 * heightOf(until[k], top, sorted[0]) + "%";
    });
    told.textContent = `Bars ${words} \u2248 ${roundTime(top)}` +
      (cut ? `: ${cut > 1 ? `${grouped(cut)} steps take` : "one step takes"} longer` : "");
  };
  const choice = element(
    "select", {"aria-label": "How high bars are", onchange: (event) => scale(event.target.value)},
    ...[["usual", `up to ${kMostMedians} medians`], ["all", "up to the longest"], ["log", "logarithmic"]].map(
      ([value, name]) => element("option", {value}, name)));
  if (!isWide) choice.querySelector("option").remove();
  scale(isWide ? "usual" : "all");
  return element(
    "div", {style: `max-width:${48 * Math.max(6, numbers.length)}px`}, element("div", {class: "axis"}, told, choice),
    element(
      "div", {
        class: "steps",
        role: "group",
        "aria-label": "Time of every step",
        onkeydown: (event) => {
          const next = event.key === "ArrowRight" ? "nextSibling" : event.key === "ArrowLeft" ? "previousSibling" : "";
          if (!next || !event.target[next]) return;
          event.target.tabIndex = -1;
          event.target[next].tabIndex = 0;
          event.target[next].focus();
          event.stopPropagation();
        }
      },
      ...bars),
    element(
      "div", {class: "axis"}, element("span", {}, `step ${numbers[0]}`),
      element("span", {}, `step ${numbers.at(-1)}`)));
}

function showStep(number, from, to) {
  showView("timeline");
  focusView();
  if (!timeline) return;
  const room = 0.05 * (to - from), tracks = timeline.lines.filter((line) => line.track).map((line) => line.track);
  timeline.lookAt(from - room, to + room);
  timeline.select({from, to: Math.min(to, timeline.trace.wall), tracks, name: `step ${number} on the host,`});
}

function stepsCard(report) {
  const {steps, steps_beside: beside, findings: found} = report, rows = [
    [`median of all ${grouped(steps.count)} on the host`, timeCell(steps.p50_ns)],
    ["99% of them are no longer than", timeCell(steps.p99_ns)],
    [`the longest of them, step ${steps.worst_step}`, timeCell(steps.worst_ns)]
  ];
  const isHeld = hasLengths(report);
  if (isHeld)
    rows.unshift(
      ["average until its work on GPUs has ended", timeCell(found.base_ns)],
      ["median until its work on GPUs has ended", timeCell(found.step_ns)],
      ["average on the host", timeCell(found.host_base_ns)]);
  if (beside)
    rows.push(
      [`median of ${beside.recorded_steps} recorded`, timeCell(beside.recorded_p50_ns)],
      [`median of ${beside.plain_steps} around them, not recorded`, timeCell(beside.plain_p50_ns)]);
  const each = steps.shown.each, warm = isHeld ? found.warm_up_steps : 0, notes = [
    "Steps are counted from 1.", each > 1 && `Of every ${each} the longest has a bar.`,
    "A click selects a step in the timeline.",
    isHeld && "The strong part of a bar is its time on the host, the pale one above goes on until its work on GPUs ended.",
    isHeld && found.steps < steps.count && `Findings, and those averages, look at ${found.steps} of them.`,
    warm && (warm > 1 ? `Steps 1 to ${warm} warmed up: their bars are hatched.`
                      : "Step 1 warmed up: its bar is hatched."),
    steps.why && `The longest on the host was ${exactTime(steps.why_ns)} longer than the median in ${visible(steps.why)}.`
  ];
  return card(
    "Steps",
    element(
      "div", {class: "chart"}, stepBars(report),
      plainTable(
        `${grouped(steps.count)} steps, ${steps.marked ? "as they are marked" : "from one run to the next"}`,
        ["", "ms"], rows)),
    element("p", {}, notes.filter(Boolean).join(" ")));
}
