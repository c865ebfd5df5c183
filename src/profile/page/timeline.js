// SPDX-License-Identifier: Apache-2.0
// The timeline: its layout, the visible part of the time, and the selection. draw.js draws it, input.js moves it.
const kRowHeight = 19, kHeadHeight = 24, kCounterHeight = 44, kTrackGap = 7, kMostRows = 100;

class Timeline {
  constructor(trace) {
    this.trace = trace;
    this.from = 0;  // what is seen, in ns
    this.to = Math.max(1, trace.wall);
    this.selected = -1;   // a span
    this.area = null;     // or {from, to, tracks}
    this.matches = null;  // per site, where something is looked for
    this.showsFlows = false;
    this.lines = this.layOut();
    this.lineOfTrack = new Map(this.lines.filter((line) => line.track).map((line) => [line.track, line]));
    this.place();
    this.scroller = byId("scroller");
    this.scroller.addEventListener("scroll", () => this.redraw());
    new ResizeObserver(() => this.redraw()).observe(byId("view-timeline"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      forgetColors();
      this.redraw();
    });
  }

  // One line for every head, track and counter, by process and by device: the host is first.
  layOut() {
    const {tracks, counters, meta} = this.trace, places = new Map();
    const at = (process, device) => {
      const key = process + "/" + device;
      if (!places.has(key)) places.set(key, {process, device, tracks: [], counters: []});
      return places.get(key);
    };
    for (const track of tracks)
      if (track.count) at(track.process, track.device).tracks.push(track);
    for (const counter of counters) at(counter.process, counter.device).counters.push(counter);
    const lines = [];
    for (const place of [...places.values()].sort((a, b) => a.process - b.process || a.device - b.device)) {
      const process = meta.processes[place.process], of = process && process.name ? visible(process.name) + " · " : "";
      lines.push({head: of + (place.device < 0 ? "host" : "GPU " + place.device)});
      // The loop's thread is first; those with next to nothing on them are folded.
      const most = Math.max(...place.tracks.map((track) => track.count)),
            isLoop = (track) => Boolean(report && report.steps && report.steps.thread.endsWith(track.name));
      if (place.device < 0)
        place.tracks.sort((a, b) => isLoop(b) - isLoop(a) || b.count - a.count || a.number - b.number);
      for (const track of place.tracks) {
        track.isFolded = track.rows.length > kMostRows || track.count < most / 20;
        lines.push({track});
      }
      for (const counter of place.counters) lines.push({counter});
    }
    return lines;
  }

  place() {
    let y = 0;
    for (const line of this.lines) {
      line.y = y;
      line.rows = line.track ? (line.track.isFolded ? Math.min(1, line.track.rows.length) : line.track.rows.length) : 0;
      line.height = line.head ? kHeadHeight : line.counter ? kCounterHeight : line.rows * kRowHeight + kTrackGap;
      y += line.height;
    }
    this.height = y;
    byId("spacer").style.height = Math.max(0, Math.min(y + 8, 3e7)) + "px";
  }

  get gutter() {
    return Math.min(170, Math.max(84, byId("canvas").clientWidth * 0.16));
  }
  get width() {
    return Math.max(1, byId("canvas").clientWidth - this.gutter);
  }
  xOf(ns) {
    return this.gutter + (ns - this.from) / (this.to - this.from) * this.width;
  }
  nsOf(x) {
    return this.from + (x - this.gutter) / this.width * (this.to - this.from);
  }
  lineAt(y) {
    const at = lowerBound(0, this.lines.length, (k) => this.lines[k].y + this.lines[k].height > y);
    return this.lines[at] || null;
  }
  // The span at a place of the canvas; one that is too short to be hit is found a few pixels beside it.
  spanAt(x, y) {
    if (x < this.gutter) return -1;
    const inside = y + this.scroller.scrollTop, line = this.lineAt(inside);
    if (!line || !line.track) return -1;
    const row = line.track.rows[Math.floor((inside - line.y) / kRowHeight)];
    if (!row || inside - line.y >= line.rows * kRowHeight) return -1;
    const {order, start} = this.trace, ns = this.nsOf(x), near = 3 / this.width * (this.to - this.from);
    const k = lowerBound(row.from, row.to, (k) => start[order[k]] > ns);
    const distance = (k) =>
      k < row.from || k >= row.to ? Infinity : Math.max(start[order[k]] - ns, ns - this.trace.end(order[k]), 0);
    const best = distance(k - 1) <= distance(k) ? k - 1 : k;
    return distance(best) <= near ? order[best] : -1;
  }

  lookAt(from, to) {
    const wall = Math.max(1, this.trace.wall), least = Math.min(wall, 20);
    const middle = (from + to) / 2, width = Math.min(wall, Math.max(least, to - from));
    this.from = Math.min(Math.max(0, middle - width / 2), wall - width);
    this.to = this.from + width;
    this.redraw();
  }
  zoom(factor, around) {
    const width = (this.to - this.from) * factor, share = (around - this.from) / (this.to - this.from);
    const wanted = Math.min(this.trace.wall, Math.max(20, width));
    this.lookAt(around - share * wanted, around + (1 - share) * wanted);
  }
  pan(share) {
    const by = share * (this.to - this.from);
    this.lookAt(this.from + by, this.to + by);
  }
  // Shows the selection, or everything.
  fit() {
    if (this.area) return this.lookAt(this.area.from, this.area.to);
    if (this.selected < 0) return this.lookAt(0, this.trace.wall);
    const from = this.trace.start[this.selected], room = Math.max(10, this.trace.duration[this.selected] * 0.05);
    this.lookAt(from - room, this.trace.end(this.selected) + room);
  }

  // `note`: a sentence about why that one.
  select(what, note = "") {
    this.note = note;
    this.selected = typeof what === "number" ? what : -1;
    this.area = typeof what === "number" ? null : what;
    showSelection(this);
    this.redraw();
  }
  // Selects a span, and moves to where it can be seen.
  goTo(span, note) {
    const {trace} = this, start = trace.start[span], end = trace.end(span), track = trace.trackOf(span),
          line = this.lineOfTrack.get(track);
    if (track.isFolded && trace.level[span] > 0) track.isFolded = false, this.place();
    const width = this.to - this.from;
    if (start < this.from || end > this.to || trace.duration[span] < width / 400) {
      const wanted = Math.min(width, Math.max(trace.duration[span] * 8, 2000));
      this.lookAt((start + end - wanted) / 2, (start + end + wanted) / 2);
    }
    const y = line.y + trace.level[span] * kRowHeight, {scrollTop, clientHeight} = this.scroller;
    if (y < scrollTop + 4 || y + kRowHeight > scrollTop + clientHeight - 4)
      this.scroller.scrollTop = y - clientHeight / 3;
    this.select(span, note);
  }

  // ---- from span to span ----
  beside(span, step) {
    const {trace} = this, track = trace.trackOf(span), row = track.rows[trace.level[span]];
    const at = lowerBound(row.from, row.to, (k) => trace.order[k] >= span) + step;
    return at >= row.from && at < row.to ? trace.order[at] : -1;
  }
  firstInside(span) {
    const {trace} = this, track = trace.trackOf(span), end = track.first + track.count;
    for (let i = span + 1; i < end && trace.start[i] <= trace.end(span); ++i)
      if (trace.parent[i] === span) return i;
    return -1;
  }
  firstSeen() {
    const {trace} = this, top = this.lineAt(this.scroller.scrollTop),
          line = top && top.track ? top : this.lines.find((line) => line.track);
    if (!line) return -1;
    const row = line.track.rows[0], at = lowerBound(row.from, row.to, (k) => trace.end(trace.order[k]) >= this.from);
    return at < row.to ? trace.order[at] : -1;
  }
  // The next span that is looked for, or of the same name; in the order of time, on all tracks.
  next(step) {
    const {trace} = this;
    const isOne =
      this.matches ? (i) => this.matches[trace.site[i]] : (i) => trace.label(i) === trace.label(this.selected);
    if (!this.matches && this.selected < 0) return -1;
    const at = this.selected >= 0 ? trace.start[this.selected]
      : step > 0                  ? this.from - 1
                                  : this.to + 1,
          now = this.selected;
    let best = -1, around = -1;  // around: where it begins anew
    const before = (a, b) => trace.start[a] - trace.start[b] || a - b;
    for (let i = 0; i < trace.size; ++i) {
      if (!isOne(i) || i === now) continue;
      const isBehind = (now >= 0 ? before(i, now) : trace.start[i] - at) * step > 0;
      if (isBehind && (best < 0 || before(i, best) * step < 0)) best = i;
      if (around < 0 || before(i, around) * step < 0) around = i;
    }
    return best >= 0 ? best : around;
  }

  redraw() {
    if (this.isWaiting) return;
    this.isWaiting = true;
    requestAnimationFrame(() => {
      this.isWaiting = false;
      if (!byId("view-timeline").hidden) drawTimeline(this);
    });
  }
}

let timeline = null;
