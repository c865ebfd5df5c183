// SPDX-License-Identifier: Apache-2.0
// Flame graphs: spans of one or of all tracks by the spans around them. Left heavy: calls of one name in the same place
// are one, the longest first. Time order: every span where it was.

// Frames in the shape that drawRow() takes: rows by depth, the width of a frame is its time.
class Frames {
  constructor(trace) {
    this.trace = trace;
    this.start = [], this.duration = [], this.labels = [], this.kindOf = [], this.parents = [], this.counts = [],
    this.selfs = [];
    this.rows = [];
    this.total = 0;
  }
  name(i) {
    return this.trace.strings[this.labels[i]];
  }
  short(i) {
    return this.trace.shorts[this.labels[i]];
  }
  kind(i) {
    return this.trace.meta.kinds[this.kindOf[i]];
  }
  finish() {
    this.order = new Uint32Array(this.start.length).map((_, i) => i);
    this.before = new Float64Array(this.start.length + 1);
    for (let k = 0; k < this.start.length; ++k) this.before[k + 1] = this.before[k] + this.duration[k];
    return this;
  }
}

// The tree of calls, by names: nodes in the order in which they were met, so that a parent comes before its parts.
function callTree(trace, tracks) {
  const tree = {label: [], parent: [], total: [], self: [], count: [], kind: []}, found = new Map(),
        labels = trace.strings.length;
  const nodeOf = (parent, label, kind) => {
    const key = (parent + 1) * labels + label;
    let node = found.get(key);
    if (node === undefined) {
      node = tree.label.length;
      found.set(key, node);
      tree.label.push(label), tree.parent.push(parent), tree.total.push(0), tree.self.push(0), tree.count.push(0),
        tree.kind.push(kind);
    }
    return node;
  };
  for (const track of tracks) {
    const nodes = new Int32Array(track.count);
    for (let i = track.first, end = track.first + track.count; i < end; ++i) {
      const parent = trace.parent[i] < 0 ? -1 : nodes[trace.parent[i] - track.first], ns = trace.duration[i];
      const node = nodes[i - track.first] = nodeOf(parent, trace.label(i), trace.sites.kind[trace.site[i]]);
      tree.total[node] += ns, tree.self[node] += ns, tree.count[node] += 1;
      if (parent >= 0) tree.self[parent] -= ns;
    }
  }
  return tree;
}

// Trees as frames, row by row. `roots` and partsOf(node) are nodes; of(node) is {label, kind, total, self, count}.
function framesOf(trace, roots, partsOf, of) {
  const frames = new Frames(trace);
  let level = [];
  const add = (nodes, parent, x) => {
    for (const node of nodes.slice().sort((a, b) => of(b).total - of(a).total || of(a).label - of(b).label)) {
      const {label, kind, total, self, count} = of(node);
      level.push([node, frames.start.length]);
      frames.start.push(x), frames.duration.push(total), frames.labels.push(label), frames.kindOf.push(kind),
        frames.parents.push(parent), frames.counts.push(count), frames.selfs.push(self);
      x += total;
    }
    return x;
  };
  frames.total = add(roots, -1, 0);
  for (let from = 0; level.length;) {
    const nodes = level;
    level = [];
    frames.rows.push({from, to: frames.start.length});
    from = frames.start.length;
    for (const [node, at] of nodes) add(partsOf(node), at, frames.start[at]);
  }
  return frames.finish();
}

function partLists(tree) {
  const parts = tree.label.map(() => []), roots = [];
  tree.parent.forEach((parent, node) => (parent < 0 ? roots : parts[parent]).push(node));
  return {parts, roots};
}
const nodeFacts = (tree) => (node) => ({
  label: tree.label[node],
  kind: tree.kind[node],
  total: tree.total[node],
  self: Math.max(0, tree.self[node]),
  count: tree.count[node]
});

function leftHeavy(trace, tracks) {
  const tree = callTree(trace, tracks), {parts, roots} = partLists(tree);
  return framesOf(trace, roots, (node) => parts[node], nodeFacts(tree));
}

// The spans of one track where they were: the timeline's rows.
function inTimeOrder(trace, track) {
  return {
    order: trace.order,
    before: trace.before,
    start: trace.start,
    duration: trace.duration,
    name: (i) => trace.name(i),
    short: (i) => trace.short(i),
    kind: (i) => trace.kind(i),
    rows: track.rows,
    total: trace.wall,
    parents: trace.parent,
    isOfTime: true
  };
}

// A flame graph on a canvas: click goes into a frame, Escape comes out again.
class FlameView {
  constructor(scroller, options = {}) {
    this.scroller = scroller;
    this.canvas = scroller.querySelector("canvas");
    this.spacer = scroller.querySelector("div");
    this.options = options;
    this.frames = null;
    this.selected = -1;
    this.from = 0, this.to = 1;
    new ResizeObserver(() => this.draw()).observe(scroller);
    scroller.addEventListener("scroll", () => this.draw());
    scroller.addEventListener("pointermove", (event) => {
      const at = this.frameAt(event);
      at < 0 ? hideTip() : tipAt(event, this.text(at));
    });
    scroller.addEventListener("pointerleave", hideTip);
    scroller.addEventListener("click", (event) => this.frameAt(event) >= 0 && this.select(this.frameAt(event)));
    scroller.addEventListener(
      "dblclick",
      () => this.options.onOpen && this.selected >= 0 &&
        this.options.onOpen(this.frames.labels ? this.frames.labels[this.selected] : -1));
    scroller.addEventListener("wheel", (event) => {
      if (!(event.ctrlKey || event.metaKey)) return;
      const box = this.canvas.getBoundingClientRect();
      this.zoom(Math.exp(Math.max(-300, Math.min(300, event.deltaY)) / 300), (event.clientX - box.left) / box.width);
      event.preventDefault();
    }, {passive: false});
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      forgetColors();
      this.draw();
    });
  }

  show(frames) {
    this.frames = frames;
    this.selected = -1;
    this.spacer.style.height = Math.min(3e7, frames.rows.length * kRowHeight + 1) + "px";
    this.lookAt(0, frames.total);
  }
  lookAt(from, to) {
    const total = Math.max(1, this.frames.total), width = Math.min(total, Math.max(Math.min(total, 10), to - from));
    this.from = Math.min(Math.max(0, (from + to - width) / 2), total - width);
    this.to = this.from + width;
    this.draw();
  }
  zoom(factor, share) {
    const width = (this.to - this.from) * factor, around = this.from + share * (this.to - this.from);
    this.lookAt(around - share * width, around + (1 - share) * width);
  }
  select(frame) {
    this.selected = frame;
    const {start, duration, total} = this.frames;
    frame < 0 ? this.lookAt(0, total) : this.lookAt(start[frame], start[frame] + duration[frame]);
    if (this.options.onSelect) this.options.onSelect(frame < 0 ? "" : this.text(frame));
  }
  text(frame) {
    const {frames} = this, time = (ns) => timeOfTrace(timeline.trace, Math.max(0, ns)), ns = frames.duration[frame];
    const name = frames.name(frame).slice(0, 300), whole = `${time(ns)}, \u2248 ${roundPercent(ns, frames.total)}`;
    if (!frames.counts) return `${name}\n${whole}`;
    return `${name}\n${whole} in ${grouped(frames.counts[frame])} calls; self ${time(frames.selfs[frame])}`;
  }
  rowOf(frame) {
    if (this.frames.isOfTime) return timeline.trace.level[frame];
    return this.frames.rows.findIndex((row) => frame >= row.from && frame < row.to);
  }
  frameAt(event) {
    if (!this.frames) return -1;
    const box = this.canvas.getBoundingClientRect(), {rows, order, start, duration} = this.frames;
    const row = rows.find((_, r) => {
      const y = event.clientY - box.top - this.yOf(r);
      return y >= 0 && y < kRowHeight;
    });
    if (!row) return -1;
    const ns = this.from + (event.clientX - box.left) / box.width * (this.to - this.from);
    const k = lowerBound(row.from, row.to, (k) => start[order[k]] > ns) - 1;
    return k >= row.from && ns <= start[order[k]] + duration[order[k]] ? order[k] : -1;
  }
  // Where a row is on the canvas: callers stand on the bottom.
  yOf(r) {
    const {rows} = this.frames, {scrollTop, clientHeight} = this.scroller;
    return this.options.isUpside
      ? Math.max(clientHeight - rows.length * kRowHeight - 1, 0) + (rows.length - 1 - r) * kRowHeight - scrollTop
      : r * kRowHeight - scrollTop;
  }
  // To the frame around, the first inside, or one beside it.
  move(key) {
    const {frames, selected} = this;
    if (!frames || !frames.rows.length) return;
    if (selected < 0) return this.select(frames.order[frames.rows[0].from]);
    const row = this.rowOf(selected), {from, to} = frames.rows[row],
          at = lowerBound(from, to, (k) => frames.order[k] >= selected);
    if (key === "ArrowUp") return this.select(frames.parents[selected]);
    if (key === "ArrowDown") {
      const below = frames.rows[row + 1],
            first = below
        ? lowerBound(below.from, below.to, (k) => frames.start[frames.order[k]] >= frames.start[selected])
        : 0;
      if (below && first < below.to && frames.parents[frames.order[first]] === selected)
        this.select(frames.order[first]);
      return;
    }
    const beside = at + (key === "ArrowRight" ? 1 : -1);
    if (beside >= from && beside < to) this.select(frames.order[beside]);
  }
  pressed(key) {
    const width = this.to - this.from, keys = {
      w: () => this.zoom(0.7, 0.5),
      s: () => this.zoom(1 / 0.7, 0.5),
      a: () => this.lookAt(this.from - 0.15 * width, this.to - 0.15 * width),
      d: () => this.lookAt(this.from + 0.15 * width, this.to + 0.15 * width),
      f: () => this.select(this.selected),
      r: () => this.select(-1),
      Escape: () => this.select(-1),
    };
    if (!this.frames) return false;
    if (key.startsWith("Arrow")) return this.move(key), true;
    const act = keys[key.length === 1 ? key.toLowerCase() : key];
    if (act) act();
    return Boolean(act);
  }

  draw() {
    if (!this.frames || !this.scroller.clientWidth) return;
    const [context, width, height] = prepare(this.canvas, this.scroller.clientHeight), {rows} = this.frames,
                           all = colors();
    const toX = {from: this.from, scale: width / (this.to - this.from), left: 0, right: width};
    const isDim = timeline.matches ? (i) => !this.isMatch(i) : null;
    context.font = `11px ${all.mono}`;
    rows.forEach((row, r) => {
      const y = this.yOf(r);
      if (y > -kRowHeight && y < height) drawRow(context, this.frames, row, toX, y, kRowHeight, isDim);
    });
    if (this.selected < 0) return;
    const r = this.rowOf(this.selected), {start, duration} = this.frames;
    context.strokeStyle = all.text;
    context.lineWidth = 2;
    context.strokeRect(
      (start[this.selected] - this.from) * toX.scale + 1, this.yOf(r),
      Math.max(3, duration[this.selected] * toX.scale - 2), kRowHeight - 1);
  }
  isMatch(i) {
    return this.frames.isOfTime ? timeline.matches[timeline.trace.site[i]]
                                : timeline.matchedLabels.has(this.frames.labels[i]);
  }
}

let flame = null;
function setUpFlame(trace) {
  const of = byId("flame-of"), tracks = trace.tracks.filter((track) => track.count),
        threads = tracks.filter((track) => track.device < 0), gpus = tracks.filter((track) => track.device >= 0);
  const headOf = (track) => {
    const process = trace.meta.processes[track.process];
    return process && process.name ? visible(process.name) + " " : "";
  };
  const nameOf = (track) => headOf(track) + track.name + (track.device >= 0 ? ` of GPU ${track.device}` : "");
  flame = new FlameView(byId("flame-scroller"), {
    onSelect: (text) => {
      byId("flame-at").textContent = text.replace("\n", ": ");
    },
    onOpen: (label) => label >= 0 && openSandwich(label)
  });
  // It opens on the side that a step's time goes to.
  const isOfGpus = gpus.length && limitOf(report) === "GPU",
        loop = threads.find((track) => report.steps && track.name === report.steps.thread);
  const fill = () => {
    const isTime = document.querySelector("input[name=order]:checked").value === "time", before = of.value;
    const choices = tracks.map((track) => [String(track.number), nameOf(track)]);
    if (!isTime && gpus.length) choices.unshift(["gpus", "all GPUs"]);
    if (!isTime && threads.length > 1) choices.unshift(["threads", "all threads"]);
    of.replaceChildren(...choices.map(([value, name]) => element("option", {value}, name)));
    const isGpu = before === "gpus" || before !== "threads" && isOfGpus;
    of.value = choices.some(([value]) => value === before) ? before
      : isGpu                                              ? isTime ? gpus[0].number : "gpus"
      : threads.length > 1 && !isTime                      ? "threads"
                                                           : (loop || threads[0] || tracks[0]).number;
    const chosen = {threads, gpus}[of.value] || tracks.filter((track) => String(track.number) === of.value);
    byId("flame-at").textContent = `On average a step's time goes to the ${isOfGpus ? "GPU" : "host"}.`;
    if (chosen.length) flame.show(isTime ? inTimeOrder(trace, chosen[0]) : leftHeavy(trace, chosen));
  };
  of.addEventListener("change", fill);
  for (const radio of document.querySelectorAll("input[name=order]")) radio.addEventListener("change", fill);
  fill();
}
