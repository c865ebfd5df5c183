// SPDX-License-Identifier: Apache-2.0
// The views, the keys that work in all of them, and the order in which the page comes to life: the report first.
const kViews = ["overview", "timeline", "flame", "sandwich", "ops"];
const kBrowsers = "Chrome 80, Firefox 113 and Safari 16.4";
const currentView = () => kViews.find((name) => !byId("view-" + name).hidden);
const made = new Set();
let report = null;

function showView(name) {
  hideTip();
  for (const view of kViews) {
    byId("view-" + view).hidden = view !== name;
    byId("tab-" + view).setAttribute("aria-selected", view === name);
    byId("tab-" + view).tabIndex = view === name ? 0 : -1;
  }
  if (timeline && !made.has(name)) {
    made.add(name);
    if (name === "flame") setUpFlame(timeline.trace);
    if (name === "sandwich") setUpSandwich(timeline.trace);
  }
  if (timeline && name === "timeline") timeline.redraw();
  try {
    history.replaceState(null, "", "#" + name);
  } catch { /* a frame may not have a place of its own */
  }
}
function focusView() {
  const target = {
    timeline: "scroller",
    flame: "flame-scroller",
    sandwich: "sandwich-list",
    overview: "view-overview",
    ops: "rows"
  }[currentView()];
  byId(target).focus({preventScroll: true});
}

const kKeys = [
  ["0 1 2 3 4", "overview, timeline (time order), flame graph (left heavy), sandwich, ops"],
  ["/ or Ctrl-F", "search; Enter and Shift-Enter go from one to the next, Escape ends it"],
  ["W S", "zoom in and out, at the pointer; Ctrl and the wheel too"],
  ["A D", "move left and right; Shift and the wheel, or Shift and drag, too"],
  ["F", "fit what is selected; everything where nothing is"],
  ["R", "everything"],
  ["Click", "select a span, or a frame"],
  ["Drag", "sums over a stretch of time; on the small picture above: look at it"],
  ["M", "the selected span's time as a stretch, on all tracks"],
  ["Double click", "fit a span; of a frame: its callers and callees"],
  [". ,", "the next and the one before: of what is looked for, else of the selected span's name"],
  ["\u2190 \u2192 \u2191 \u2193", "beside, the span around, the first inside"],
  ["X", "all arrows: what started what, and what reads what"],
  ["Escape", "select nothing, and end the search"],
  ["?", "this list"],
];

function listenToKeys() {
  const views = () => ({timeline, flame, sandwich: sandwich && sandwich.callees}[currentView()]);
  addEventListener("keydown", (event) => {
    if (byId("help").open) return;
    const isFind = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "f";
    const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "radio";
    if (isFind || event.key === "/" && !isTyping) {
      byId("search").focus();
      byId("search").select();
      return event.preventDefault();
    }
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") endSearch();
    if (event.key === "?")
      byId("help").showModal();
    else if (/^[0-4]$/.test(event.key))
      showView(kViews[event.key]), focusView();
    else if (event.key.startsWith("Arrow") && event.target.getAttribute("role") === "tab") {
      const step = event.key === "ArrowRight" ? 1
        : event.key === "ArrowLeft"           ? kViews.length - 1
                                              : 0,
            next = kViews[(kViews.indexOf(currentView()) + step) % kViews.length];
      showView(next);
      byId("tab-" + next).focus();
    } else if (event.key === "Enter" || event.key === " " || !views() || !views().pressed(event.key))
      return;
    event.preventDefault();
  });
  kViews.forEach((view) => byId("tab-" + view).addEventListener("click", () => {
    showView(view);
    focusView();
  }));
  byId("help-button").addEventListener("click", () => byId("help").showModal());
  byId("keys").append(plainTable(element("span", {class: "unseen"}, "Keys"), ["Key", "Does"], kKeys));
}

function say(trace) {
  const q = trace ? trace.quantum : 1, {left_out: left = []} = trace ? trace.meta : {};
  const times = !trace ? ""
    : q > 1
    ? `Spans are drawn to ${exactTime(q)}: times and sums of the timeline and the flame graphs are rounded to that. `
    : "Spans are drawn to the nanosecond. ";
  const without = left.length ? `To keep the page small it leaves out: ${left.map(visible).join(", ")}. ` : "";
  byId("rounding").textContent =
    `Numbers of tables are exact to the nanosecond; those marked \u2248 are rounded for reading, ` +
    `and say on hovering what they are exactly. Sentences of findings round to three digits. ${
      times}${without}A recording (.paoding) keeps everything.`;
  byId("foot").append(
    ...
      [trace && counted(trace.size, "span"),
       trace && counted(trace.tracks.filter((track) => track.count).length, "track"),
       times && (q > 1 ? `timeline rounded to ${exactTime(q)}; tables of the report exact` : "timeline and tables exact to the nanosecond"),
       left.length && `left out: ${left.length}`]
        .filter(Boolean)
        .map((text) => element("span", {}, text)));
}

async function begin() {
  listenToKeys();
  listenToSearch();
  report = await unpackJson("report");
  if (!report)
    return announceProblem(
      `This browser cannot unpack what the page holds: it has no DecompressionStream (${kBrowsers} have one).`);
  byId("program").textContent = document.title;
  writeOverview(report);
  await writeOps(report);
  const asked = location.hash.slice(1);
  if (kViews.includes(asked)) showView(asked);
  const hasTrace = Boolean(byId("paoding-trace"));
  const trace = await readTrace();
  if (!trace || !trace.size && !trace.counters.length) {
    const why = hasTrace && !trace
      ? `This browser has no DecompressionStream (${kBrowsers} have one): the report is there, the timeline and the ` +
        "flame graphs are not."
      : "";
    if (why) announceProblem(why);
    for (const id of ["timeline-empty", "flame-empty"])
      byId(id).hidden = false, byId(id).textContent = why || "Nothing was recorded, so there is nothing to draw.";
    for (const id of ["minimap", "ruler", "scroller", "details", "flame-scroller", "sandwich-sides"])
      byId(id).hidden = true;
    byId("sandwich-list")
      .append(element("p", {class: "empty"}, why || "Nothing was recorded, so there is nothing to draw."));
    say(null);
  } else {
    timeline = new Timeline(trace);
    listenToTimeline(timeline);
    showSelection(timeline);
    if (kViews.includes(asked)) showView(asked);
    say(trace);
    if (byId("search").value) search();
  }
  document.documentElement.dataset.ready = Math.round(performance.now());
}

begin().catch((error) => announceProblem(`The page could not be read: ${error.message}`));
