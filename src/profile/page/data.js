// SPDX-License-Identifier: Apache-2.0
// The data of the page: the report, and the spans of the trace in columns (src/profile/page_columns.h says how they are
// written). Spans are numbered as in the trace: by track, and on one by their start.
const kCanUnpack = typeof DecompressionStream === "function";

// The bytes of a deflated element, which is let go of; null where there is none.
async function unpack(id) {
  const from = byId("paoding-" + id);
  if (!from) return null;
  const text = atob(from.textContent);
  from.remove();
  const packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// An element of JSON, deflated or not; null where there is none, or the browser cannot undo it.
async function unpackJson(id) {
  const from = byId("paoding-" + id);
  if (!from || from.dataset.packed && !kCanUnpack) return null;
  return JSON.parse(from.dataset.packed ? new TextDecoder().decode(await unpack(id)) : from.textContent);
}

// Goes through bytes that VarintBytes wrote. Numbers beyond 2^53 lose their last bits.
class Varints {
  constructor(bytes, at = 0, end = bytes.length) {
    this.bytes = bytes;
    this.at = at;
    this.end = end;
  }
  get isOver() { return this.at >= this.end; }
  next() {
    const bytes = this.bytes;
    let byte = bytes[this.at++];
    if (byte < 128) return byte;
    let value = byte & 127, scale = 128;
    do {
      byte = bytes[this.at++];
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte >= 128);
    return value;
  }
  nextSigned() {
    const value = this.next();
    return value % 2 ? -(value + 1) / 2 : value / 2;
  }
  // A column: its length in bytes, and these.
  column() {
    const length = this.next();
    this.at += length;
    return new Varints(this.bytes, this.at - length, this.at);
  }
}

class TraceData {
  constructor(meta) {
    const n = meta.spans;
    this.meta = meta;
    this.size = n;
    this.wall = meta.wall_ns;
    this.quantum = meta.quantum_ns;
    this.start = new Float64Array(n);  // ns from the start of the recording
    this.duration = new Float64Array(n);
    this.site = new Uint32Array(n);
    this.level = new Uint16Array(n);  // row of its track, the first is 0; as they come: how deep
    this.parent = new Int32Array(n).fill(-1);
    this.sites = meta.sites;
    this.strings = meta.strings.map(visible);
    this.shorts = this.strings.slice();  // names as they are drawn: of kernels the function alone
    for (const [number, text] of Object.entries(meta.shorts)) this.shorts[number] = visible(text);
    this.labelOfSite = (meta.sites.name || []).map((name, site) => name || this.stringOfKind(site));
    this.tracks = (meta.tracks.name || []).map((name, t) => ({
                                                 name: this.strings[name],
                                                 kind: meta.tracks.kind[t],
                                                 device: meta.tracks.device[t],
                                                 process: meta.tracks.process[t],
                                                 count: meta.tracks.spans[t],
                                                 first: 0,
                                                 rows: [],
                                                 isFolded: false,
                                                 number: t,
                                               }));
    let first = 0;
    for (const track of this.tracks) track.first = first, first += track.count;
    this.causeOf = null;  // per span, -1: none
    this.flows = [];      // [from, to], ..
    this.counters = [];
    this.arguments = null;  // read when they are asked for
  }

  stringOfKind(site) {
    const text = this.meta.kinds[this.sites.kind[site]];
    let at = this.strings.indexOf(text);
    if (at < 0) at = this.strings.push(text) - 1, this.shorts.push(text);
    return at;
  }
  label(i) { return this.labelOfSite[this.site[i]]; }
  name(i) { return this.strings[this.label(i)]; }
  short(i) { return this.shorts[this.label(i)]; }
  kind(i) { return this.meta.kinds[this.sites.kind[this.site[i]]]; }
  end(i) { return this.start[i] + this.duration[i]; }
  trackOf(i) {
    let low = 0, high = this.tracks.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      this.tracks[middle].first <= i ? low = middle : high = middle - 1;
    }
    while (!this.tracks[low].count) --low;
    return this.tracks[low];
  }

  readBlock(first, bytes) {
    const all = new Varints(bytes);
    const site = all.column(), start = all.column(), duration = all.column(), depth = all.column();
    const end = Math.min(this.size, first + this.meta.per_block), q = this.quantum;
    let ends = [], startBefore = 0, depthBefore = 0, trackEnd = -1;
    for (let i = first; i < end; ++i) {
      const mine = depth.next();
      if (i === first || i === trackEnd) {
        const track = this.trackOf(i);
        trackEnd = track.first + track.count;
        ends = [], startBefore = 0, depthBefore = mine;
      }
      const from = (mine > depthBefore ? startBefore : ends[mine] || 0) + start.nextSigned(), length = duration.next();
      this.site[i] = site.next();
      this.start[i] = from * q;
      this.duration[i] = length * q;
      this.level[i] = mine;
      ends[mine] = from + length;
      startBefore = from;
      depthBefore = mine;
    }
  }

  // Parents by the depths; rows on which spans do not overlap, each below its parent's.
  arrange(otherParents) {
    const others = new Map();
    if (otherParents) {
      const all = new Varints(otherParents), of = all.column(), by = all.column();
      for (let i = 0; !of.isOver;) i += of.next(), others.set(i, by.next() - 1);
    }
    this.order = new Uint32Array(this.size);        // by track and row, on one by start
    this.before = new Float64Array(this.size + 1);  // durations of all in front of it in that order
    const kMostBeside = 64;
    for (const track of this.tracks) {
      const last = [], ends = [], counts = [], end = track.first + track.count;
      for (let i = track.first; i < end; ++i) {
        const depth = this.level[i], other = others.size ? others.get(i) : undefined;
        const parent = other !== undefined ? other : depth ? last[depth - 1] : -1;
        last[depth] = i;
        this.parent[i] = parent;
        const from = parent < 0 ? 0 : this.level[parent] + 1;
        let row = from;
        while (row < ends.length && row < from + kMostBeside && ends[row] > this.start[i]) ++row;
        row = Math.min(row, 65535);
        while (ends.length <= row) ends.push(0), counts.push(0);
        ends[row] = this.start[i] + this.duration[i];
        this.level[i] = row;
        ++counts[row];
      }
      let at = track.first;
      track.rows = counts.map((count) => ({from: at, to: (at += count)}));
      const next = track.rows.map((row) => row.from);
      for (let i = track.first; i < end; ++i) this.order[next[this.level[i]]++] = i;
    }
    for (let k = 0; k < this.size; ++k) this.before[k + 1] = this.before[k] + this.duration[this.order[k]];
  }

  readCauses(bytes) {
    if (!bytes) return;
    this.causeOf = new Int32Array(this.size).fill(-1);
    this.effectStart = new Uint32Array(this.size + 1);
    const all = new Varints(bytes), of = all.column(), by = all.column();
    for (let i = 0, cause = 0; !of.isOver;) {
      i += of.next(), cause += by.nextSigned();
      this.causeOf[i] = cause;
      ++this.effectStart[cause + 1];
    }
    for (let i = 0; i < this.size; ++i) this.effectStart[i + 1] += this.effectStart[i];
    const next = this.effectStart.slice();
    this.effect = new Uint32Array(this.effectStart[this.size]);
    for (let i = 0; i < this.size; ++i)
      if (this.causeOf[i] >= 0) this.effect[next[this.causeOf[i]]++] = i;
  }
  effectsOf(i) { return this.causeOf ? this.effect.subarray(this.effectStart[i], this.effectStart[i + 1]) : []; }

  readFlows(bytes) {
    if (!bytes) return;
    const all = new Varints(bytes), from = all.column(), to = all.column();
    for (let a = 0, b = 0; !from.isOver;) this.flows.push([a += from.nextSigned(), b += to.nextSigned()]);
  }

  readCounter(counter, bytes) {
    const all = new Varints(bytes), when = all.column(), what = all.column();
    const times = [], values = [];
    for (let at = 0, value = 0; !when.isOver;) {
      times.push((at += when.nextSigned()) * this.quantum);
      values.push(value += what.nextSigned());
    }
    const most = values.reduce((a, b) => Math.max(a, b), 0);
    this.counters.push(
      {name: this.strings[counter.name], device: counter.device, process: counter.process, times, values, most});
  }

  // The arguments that a span carries: [name, value], ..
  async argumentsOf(i) {
    if (!this.arguments) {
      this.arguments = Promise.all(this.meta.arguments.map(async (meta, number) => {
        const bytes = await unpack("arguments" + number);
        const all = new Varints(bytes), of = all.column(), what = all.column();
        const spans = [], values = [], reals = new DataView(bytes.buffer, bytes.byteOffset + all.at);
        for (let span = 0, value = 0; !of.isOver;) {
          spans.push(span += of.next());
          if (meta.type === "integer")
            values.push(value += what.nextSigned());
          else if (meta.type === "text")
            values.push(visible(meta.texts[what.next()]));
          else
            values.push(reals.getFloat64(8 * values.length, true));
        }
        return {name: visible(meta.name), spans: Uint32Array.from(spans), values};
      }));
    }
    const found = [];
    for (const {name, spans, values} of await this.arguments) {
      const at = lowerBound(0, spans.length, (k) => spans[k] >= i);
      if (spans[at] === i) found.push([name, values[at]]);
    }
    return found;
  }
}

// The first number from `low` on, and before `high`, of which `isThere` is true, as it is of all behind it.
function lowerBound(low, high, isThere) {
  while (low < high) {
    const middle = (low + high) >>> 1;
    isThere(middle) ? high = middle : low = middle + 1;
  }
  return low;
}

async function readTrace() {
  const meta = await unpackJson("trace");
  if (!meta || !kCanUnpack) return null;
  const trace = new TraceData(meta);
  const blocks = [];
  for (let first = 0; first < meta.spans; first += meta.per_block) blocks.push(first);
  const kAhead = 4;
  const coming = blocks.slice(0, kAhead).map((_, k) => unpack("spans" + k));
  for (let k = 0; k < blocks.length; ++k) {
    const bytes = await coming[k];
    coming[k] = null;
    if (k + kAhead < blocks.length) coming.push(unpack("spans" + (k + kAhead)));
    trace.readBlock(blocks[k], bytes);
  }
  trace.arrange(await unpack("parents"));
  trace.readCauses(await unpack("causes"));
  trace.readFlows(await unpack("flows"));
  for (let k = 0; k < meta.counters.length; ++k) trace.readCounter(meta.counters[k], await unpack("samples" + k));
  return trace;
}
