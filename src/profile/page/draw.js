// SPDX-License-Identifier: Apache-2.0
// Drawing on canvases. Drawing a row takes as long as it has visible pixels, however many spans there are: those that
// share a pixel are one mark, as strong as the pixel is busy.
let colorsOf = null;

function forgetColors() { colorsOf = null; }
function colors() {
  if (colorsOf) return colorsOf;
  const style = getComputedStyle(document.documentElement),
        value = (name) => style.getPropertyValue("--" + name).trim();
  colorsOf = {of: new Map()};
  for (const name of
         ["page", "panel", "raised", "line", "faint", "text", "soft", "accent", "warn", "on-fill", "plain-fill",
          "wait-fill", "fill-light", "fill-strength", "mono", "sans", "use-0", "use-2"])
    colorsOf[name] = value(name);
  return colorsOf;
}
// The same name has the same colour in every view. Waiting, and spans that only surround, are grey.
function fillOf(name, kind) {
  const all = colors(), key = kind + " " + name;
  let fill = all.of.get(key);
  if (fill) return fill;
  if (kind === "wait" || kind === "recording")
    fill = all["wait-fill"];
  else if (kind === "run" || kind === "step")
    fill = all["plain-fill"];
  else {
    let hash = 2166136261;
    for (let i = 0; i < name.length && i < 200; ++i) hash = Math.imul(hash ^ name.charCodeAt(i), 16777619);
    hash ^= hash >>> 15;
    const hues = [212, 24, 160, 280, 46, 340, 96, 190, 258, 8, 130, 310];
    const light = parseFloat(all["fill-light"]) + (hash >>> 12) % 7 - 3;
    fill = `hsl(${hues[(hash >>> 0) % hues.length] + (hash >>> 8) % 9} ${all["fill-strength"]} ${light}%)`;
  }
  all.of.set(key, fill);
  return fill;
}

// A canvas that fills its element, sharp on every screen. Returns its context, and its size in CSS pixels.
function prepare(canvas, height) {
  const scale = window.devicePixelRatio || 1, width = canvas.clientWidth;
  if (height !== undefined)
    canvas.style.height = height + "px", canvas.style.marginBottom = -height + "px";  // takes no room
  else
    height = canvas.clientHeight;
  const w = Math.round(width * scale), h = Math.round(height * scale);
  if (canvas.width !== w || canvas.height !== h) canvas.width = w, canvas.height = h;
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  context.textBaseline = "middle";
  return [context, width, height];
}

// Text that is cut with dots where it would not fit; nothing where three letters would not.
function drawCut(context, text, x, y, width, charWidth) {
  const fits = Math.floor(width / charWidth);
  if (fits < 3) return;
  context.fillText(text.length <= fits ? text : text.slice(0, fits - 1) + "\u2026", x, y);
}

// Spans of one row, in order and beside each other. `model`: order, before, start, duration, and of a span name(i),
// short(i), kind(i); isDim(i) fades spans that the search does not match. `toX`: {from, scale, left, right}, from ns to
// pixels.
function drawRow(context, model, row, toX, y, height, isDim) {
  const {order, before, start, duration} = model, {from, scale, left, right} = toX;
  const all = colors(), charWidth = 6.7;
  let k = lowerBound(row.from, row.to, (k) => start[order[k]] >= from);
  if (k > row.from && start[order[k - 1]] + duration[order[k - 1]] > from) --k;
  let run = null;  // marks beside each other that look the same
  const flush = () => {
    if (!run) return;
    context.globalAlpha = run.alpha;
    context.fillStyle = run.fill;
    context.fillRect(run.x, y, run.end - run.x, height - 1);
    context.globalAlpha = 1;
    run = null;
  };
  while (k < row.to) {
    const i = order[k], x = left + (start[i] - from) * scale;
    if (x >= right) break;
    const width = duration[i] * scale;
    if (width >= 2) {
      flush();
      const x0 = Math.max(left, x), x1 = Math.min(right, x + width), kind = model.kind(i), dim = isDim && isDim(i);
      context.globalAlpha = dim ? 0.22 : 1;
      context.fillStyle = fillOf(model.name(i), kind);
      context.fillRect(x0, y, Math.max(1, x1 - x0 - (width > 4 ? 0.75 : 0)), height - 1);
      if (x1 - x0 > 24) {
        context.fillStyle = kind === "wait" || kind === "recording" ? all.soft : all["on-fill"];
        drawCut(context, model.short(i), x0 + 4, y + height / 2, x1 - x0 - 8, charWidth);
      }
      context.globalAlpha = 1;
      ++k;
      continue;
    }
    // All that begin in this pixel, found by steps that double.
    const pixel = Math.floor(x), end = from + (pixel + 1 - left) / scale;
    let step = 1, low = k + 1;
    while (low + step < row.to && start[order[low + step]] < end) low += step, step *= 2;
    let next = lowerBound(low, Math.min(row.to, low + step + 1), (k) => start[order[k]] >= end);
    let longest = i, isSeen = isDim ? !isDim(i) : true;
    for (let n = k + 1; n < next && n < k + 6; ++n) {
      const dim = isDim && isDim(order[n]);
      if (isDim && !dim && !isSeen || duration[order[n]] > duration[longest] && (!isDim || !dim || !isSeen))
        longest = order[n];
      if (!dim) isSeen = true;
    }
    // One that is long goes beyond the pixel: it is drawn for itself.
    if (next > k + 1 && duration[order[next - 1]] * scale >= 2) --next;
    const busy = Math.min(1, (before[next] - before[k]) * scale);
    const alpha = isDim && !isSeen ? 0.15 : 0.4 + 0.6 * Math.round(busy * 4) / 4,
          fill = fillOf(model.name(longest), model.kind(longest));
    const x0 = Math.max(left, pixel), x1 = Math.min(right, pixel + 1);
    if (run && run.fill === fill && run.alpha === alpha && x0 - run.end < 0.5)
      run.end = x1;
    else
      flush(), run = {x: x0, end: x1, fill, alpha};
    k = next;
  }
  flush();
}

// Times that are round numbers, about 110 pixels apart.
function ticks(from, to, width) {
  const rough = (to - from) / Math.max(1, width / 110), power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].map((n) => n * power).find((step) => step >= rough));
  const found = [];
  for (let n = Math.ceil(from / step); n * step <= to && found.length < 1000; ++n) found.push(n * step);
  return {step, at: found};
}
// Where many digits would be the same from tick to tick, they count from the first one, which has them all.
function tickText(ns, step, first) {
  if (!ns) return "0";
  const unitOf = (ns) => kUnits.find(([, size]) => Math.abs(ns) >= size) || kUnits[3],
        digitsOf = (size) => Math.max(0, Math.ceil(Math.log10(size / step) - 1e-9)), [unit, size] = unitOf(ns);
  if (digitsOf(size) <= 3) return (ns / size).toFixed(digitsOf(size)) + " " + unit;
  if (ns === first) return exactTime(ns);
  const [small, smallSize] = unitOf(ns - first);
  return `+${((ns - first) / smallSize).toFixed(digitsOf(smallSize))} ${small}`;
}

function drawRuler(view) {
  const [context, width, height] = prepare(byId("ruler")), all = colors();
  context.font = `11px ${all.sans}`;
  const room = byId("scroller").offsetWidth - byId("scroller").clientWidth;
  const {step, at} = ticks(view.from, view.to, view.width);
  for (const ns of at) {
    const x = Math.round(view.xOf(ns)) + 0.5;
    context.fillStyle = all.line;
    context.fillRect(x, height - 7, 1, 7);
    context.fillStyle = all.soft;
    const text = tickText(ns, step, at[0]), wide = context.measureText(text).width;
    context.fillText(text, x + 4 + wide < width - room ? x + 4 : x - 4 - wide, height / 2);
  }
  context.fillStyle = all.text;
  context.fillText("\u2248 " + roundTime(view.to - view.from) + " seen", 10, height / 2);
  if (view.area) {
    const x0 = Math.max(view.gutter, view.xOf(view.area.from)), x1 = Math.min(width, view.xOf(view.area.to));
    context.fillStyle = all.accent;
    if (x1 > x0) context.fillRect(x0, height - 3, x1 - x0, 3);
  }
}

function drawTimeline(view) {
  const started = performance.now(), {trace, scroller} = view, all = colors();
  const [context, width, height] = prepare(byId("canvas"), scroller.clientHeight);
  const gutter = view.gutter, top = scroller.scrollTop;
  const toX = {from: view.from, scale: view.width / (view.to - view.from), left: gutter, right: width};
  const isDim = view.matches ? (i) => !view.matches[trace.site[i]] : null;
  for (const ns of ticks(view.from, view.to, view.width).at) {
    context.fillStyle = all.faint;
    context.fillRect(Math.round(view.xOf(ns)) + 0.5, 0, 1, height);
  }
  const first = lowerBound(0, view.lines.length, (k) => view.lines[k].y + view.lines[k].height > top);
  for (let k = first; k < view.lines.length && view.lines[k].y < top + height; ++k) {
    const line = view.lines[k], y = line.y - top;
    if (line.head) {
      context.fillStyle = all.raised;
      context.fillRect(0, y, width, line.height - 4);
      context.fillStyle = all.text;
      context.font = `600 12px ${all.sans}`;
      context.fillText(line.head, 10, y + (line.height - 4) / 2);
    } else if (line.counter)
      drawCounter(context, view, line, y, toX);
    else {
      context.font = `11px ${all.mono}`;
      for (let r = Math.max(0, Math.floor(-y / kRowHeight)); r < line.rows && y + r * kRowHeight < height; ++r)
        drawRow(context, trace, line.track.rows[r], toX, y + r * kRowHeight, kRowHeight, isDim);
      drawGutter(
        context, line.track.name, line.track.rows.length > 1 ? line.track.isFolded ? "\u25b8" : "\u25be" : "", y,
        Math.max(y, 0), line.height, gutter);
    }
  }
  if (view.area) drawArea(context, view, top, height, toX);
  if (view.showsFlows) drawAllFlows(context, view, top, height);
  if (view.selected >= 0) drawSelected(context, view, top);
  context.fillStyle = all.line;
  context.fillRect(gutter - 1, 0, 1, height);
  drawRuler(view);
  drawMinimap(view);
  view.lastDrawMs = performance.now() - started;
}

function drawGutter(context, name, mark, y, textY, height, gutter) {
  const all = colors();
  context.fillStyle = all.panel;
  context.fillRect(0, y, gutter, height);
  context.fillStyle = all.text;
  context.font = `12px ${all.sans}`;
  drawCut(context, name, 20, textY + kRowHeight / 2, gutter - 24, 6.6);
  context.fillStyle = all.soft;
  context.fillText(mark, 7, textY + kRowHeight / 2);
}

function drawCounter(context, view, {counter, height: full}, y, {left, right, scale, from}) {
  const all = colors(), height = full - 8, bottom = y + height, {times, values, most} = counter;
  const yOf = (value) => bottom - (most > 0 ? Math.max(0, value) / most * (height - 4) : 0);
  context.beginPath();
  context.moveTo(left, bottom);
  const first = Math.max(0, lowerBound(0, times.length, (k) => times[k] > view.from) - 1);
  for (let k = first, drawn = -1; k < times.length && times[k] < view.to; ++k) {
    const x = Math.max(left, left + (times[k] - from) * scale),
          next = k + 1 < times.length ? Math.min(right, left + (times[k + 1] - from) * scale) : right;
    if (next - drawn < 0.3 && k + 1 < times.length && values[k] <= values[k + 1]) continue;
    context.lineTo(x, yOf(values[k]));
    context.lineTo(next, yOf(values[k]));
    drawn = next;
  }
  context.lineTo(right, bottom);
  context.fillStyle = all["use-2"];
  context.globalAlpha = 0.3;
  context.fill();
  context.globalAlpha = 1;
  context.strokeStyle = all["use-2"];
  context.stroke();
  drawGutter(context, counter.name, "", y, y, full, left);
  context.fillStyle = all.soft;
  context.font = `11px ${all.sans}`;
  drawCut(context, "most \u2248 " + roundBytes(most), 20, y + kRowHeight * 1.5, left - 24, 6);
}

function drawArea(context, view, top, height, {left, right}) {
  const all = colors(), x0 = Math.max(left, view.xOf(view.area.from)), x1 = Math.min(right, view.xOf(view.area.to));
  if (x1 <= x0) return;
  context.fillStyle = all.accent;
  for (const line of view.lines) {
    if (!line.track || line.y > top + height || line.y + line.height < top || !view.area.tracks.includes(line.track))
      continue;
    context.globalAlpha = 0.14;
    context.fillRect(x0, line.y - top, x1 - x0, line.height - 2);
  }
  context.globalAlpha = 1;
  context.fillRect(x0, 0, 1, height);
  context.fillRect(x1 - 1, 0, 1, height);
}

function placeOf(view, span, top) {
  const track = view.trace.trackOf(span), found = view.lineOfTrack.get(track);
  const row = track.isFolded ? 0 : view.trace.level[span];
  return {
    x: view.xOf(view.trace.start[span]),
    end: view.xOf(view.trace.end(span)),
    y: found.y - top + row * kRowHeight
  };
}

function drawArrow(context, from, to) {
  const x0 = Math.min(Math.max(from.x, -1e4), 3e4), x1 = Math.min(Math.max(to.x, -1e4), 3e4),
        y0 = from.y + kRowHeight / 2, y1 = to.y + kRowHeight / 2;
  const bend = Math.max(18, Math.abs(x1 - x0) / 3);
  context.beginPath();
  context.moveTo(x0, y0);
  context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
  context.stroke();
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x1 - 7, y1 - 4);
  context.lineTo(x1 - 7, y1 + 4);
  context.fill();
}

function clipToRows(context, view, draw) {
  context.save();
  context.beginPath();
  context.rect(view.gutter, 0, view.width, 1e5);
  context.clip();
  context.strokeStyle = context.fillStyle = colors().accent;
  context.lineWidth = 1.5;
  draw();
  context.restore();
}

function drawSelected(context, view, top) {
  const {trace, selected} = view, here = placeOf(view, selected, top), all = colors();
  clipToRows(context, view, () => {
    context.globalAlpha = 0.9;
    const cause = trace.causeOf ? trace.causeOf[selected] : -1;
    if (cause >= 0) drawArrow(context, placeOf(view, cause, top), here);
    for (const effect of [...trace.effectsOf(selected)].slice(0, 300))
      drawArrow(context, here, placeOf(view, effect, top));
    for (const [from, to] of trace.flows)
      if (from === selected || to === selected) drawArrow(context, placeOf(view, from, top), placeOf(view, to, top));
    context.globalAlpha = 1;
    context.strokeStyle = all.text;
    context.lineWidth = 2;
    context.strokeRect(here.x - 0.5, here.y - 0.5, Math.max(3, here.end - here.x), kRowHeight);
  });
}

// Every arrow that begins or ends where is looked at, as far as they can be told apart.
function drawAllFlows(context, view, top, height) {
  const {trace} = view, kMost = 1500;
  let drawn = 0;
  const isSeen = (place) =>
    place.x > view.gutter - 1 && place.x < view.gutter + view.width && place.y > -kRowHeight && place.y < height;
  clipToRows(context, view, () => {
    context.globalAlpha = 0.4;
    context.lineWidth = 1;
    const draw = (a, b) => {
      const from = placeOf(view, a, top), to = placeOf(view, b, top);
      if (isSeen(from) || isSeen(to)) drawArrow(context, from, to), ++drawn;
    };
    for (const [from, to] of trace.flows)
      if (drawn < kMost && trace.start[to] >= view.from && trace.start[from] <= view.to) draw(from, to);
    for (let i = 0; trace.causeOf && i < trace.size && drawn < kMost; ++i)
      if (trace.causeOf[i] >= 0 && trace.start[i] >= view.from && trace.start[i] <= view.to) draw(trace.causeOf[i], i);
  });
}

// How busy threads and GPUs are over the whole recording, and a frame around the visible part.
function drawMinimap(view) {
  const [context, width, height] = prepare(byId("minimap")), all = colors(), left = view.gutter,
                         wall = Math.max(1, view.trace.wall);
  context.font = `12px ${all.sans}`;
  const halves = [
    ["host", (track) => track.device < 0, "use-0"], ["GPUs", (track) => track.device >= 0, "use-2"]
  ].filter(([, isOf]) => view.trace.tracks.some((track) => track.count && isOf(track)));
  const each = (height - 4) / Math.max(1, halves.length), columns = Math.floor(width - left);
  halves.forEach(([name, isOf, color], h) => {
    const key = `${name} ${columns}`, kept = (view.busy ||= new Map());
    if (!kept.has(key))
      kept.set(
        key,
        busyOver(view.trace, view.trace.tracks.filter((track) => track.count && isOf(track)).slice(0, 64), columns));
    const bottom = 2 + each * (h + 1);
    context.fillStyle = all[color];
    kept.get(key).forEach((busy, x) => context.fillRect(left + x, bottom - busy * (each - 3), 1, busy * (each - 3)));
    context.fillStyle = all.soft;
    context.fillText(name + " busy", 10, bottom - each / 2);
  });
  const x0 = left + view.from / wall * columns, x1 = left + view.to / wall * columns;
  context.fillStyle = all.panel;
  context.globalAlpha = 0.66;
  context.fillRect(left, 0, x0 - left, height);
  context.fillRect(x1, 0, width - x1, height);
  context.globalAlpha = 1;
  context.strokeStyle = all.accent;
  context.lineWidth = 1.5;
  context.strokeRect(x0 + 0.5, 0.75, Math.max(2, x1 - x0 - 1), height - 2);
}

// The share of every of so many equal parts of the time in which outermost spans of the busiest track were under way.
function busyOver(trace, tracks, columns) {
  const busy = new Float64Array(Math.max(0, columns)), each = Math.max(1, trace.wall) / Math.max(1, columns);
  for (const track of tracks) {
    const row = track.rows[0];
    const until = (ns, from) => {  // busy time in front of a moment, and where that is
      const k = lowerBound(from, row.to, (k) => trace.start[trace.order[k]] >= ns);
      const over = k > row.from ? Math.max(0, trace.end(trace.order[k - 1]) - ns) : 0;
      return [trace.before[k] - trace.before[row.from] - over, k];
    };
    for (let x = 0, [done, at] = [0, row.from]; x < columns; ++x) {
      const [now, next] = until((x + 1) * each, at);
      busy[x] = Math.max(busy[x], (now - done) / each);
      done = now, at = next;
    }
  }
  return busy;
}
