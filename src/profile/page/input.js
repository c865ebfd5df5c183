// SPDX-License-Identifier: Apache-2.0
// Mouse, wheel and keys of the timeline.
function listenToTimeline(view) {
  const {scroller} = view, minimap = byId("minimap");
  let drag = null, pointer = null;
  const at = (event) => {
    const box = byId("canvas").getBoundingClientRect();
    return {x: event.clientX - box.left, y: event.clientY - box.top};
  };

  scroller.addEventListener("wheel", (event) => {
    const line = event.deltaMode === 1 ? 16 : 1, {deltaX, deltaY} = event;
    if (event.ctrlKey || event.metaKey) {
      view.zoom(
        Math.exp(Math.max(-300, Math.min(300, deltaY * line)) / 300), view.nsOf(Math.max(view.gutter, at(event).x)));
    } else if (event.shiftKey || Math.abs(deltaX) > Math.abs(deltaY)) {
      view.pan((event.shiftKey ? deltaX || deltaY : deltaX) * line / view.width);
    } else
      return;
    event.preventDefault();
  }, {passive: false});

  scroller.addEventListener("pointerdown", (event) => {
    const place = at(event);
    if (event.button > 1 || place.x > byId("canvas").clientWidth) return;
    scroller.focus({preventScroll: true});
    drag = {
      ...place,
      from: view.from,
      to: view.to,
      pans: event.shiftKey || event.button === 1,
      top: scroller.scrollTop,
      isFar: false
    };
    scroller.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  scroller.addEventListener("pointermove", (event) => {
    const place = pointer = at(event);
    if (!drag) return showTip(view, event, place);
    hideTip();
    drag.isFar ||= Math.hypot(place.x - drag.x, place.y - drag.y) > 4;
    if (!drag.isFar) return;
    if (drag.pans) {
      const by = (drag.x - place.x) / view.width * (drag.to - drag.from);
      view.lookAt(drag.from + by, drag.to + by);
      scroller.scrollTop = drag.top + drag.y - place.y;
    } else if (drag.x >= view.gutter) {
      const [x0, x1] = [drag.x, place.x].sort((a, b) => a - b),
                 [y0, y1] = [drag.y + drag.top, place.y + scroller.scrollTop].sort((a, b) => a - b);
      const tracks =
        view.lines.filter((line) => line.track && line.y < y1 && line.y + line.height > y0).map((line) => line.track);
      view.selected = -1;
      // Where no track is there is nothing to sum up.
      view.area = tracks.length ? {
        from: Math.max(0, view.nsOf(Math.max(view.gutter, x0))),
        to: Math.min(view.trace.wall, view.nsOf(x1)),
        tracks
      }
                                : null;
      view.redraw();
    }
  });
  scroller.addEventListener("pointerup", (event) => {
    if (!drag) return;
    const {isFar, pans, x, y, top} = drag;
    drag = null;
    if (isFar) return pans || view.select(view.area || -1);
    if (x < view.gutter) {
      const line = view.lineAt(y + top);
      if (line && line.track && line.track.rows.length > 1)
        line.track.isFolded = !line.track.isFolded, view.place(), view.redraw();
      return;
    }
    view.select(view.spanAt(x, y));
  });
  scroller.addEventListener("pointercancel", () => drag = null);
  scroller.addEventListener("pointerleave", hideTip);
  scroller.addEventListener("dblclick", () => view.selected >= 0 && view.fit());

  const moveTo = (event) => {
    const box = minimap.getBoundingClientRect(),
          ns = (event.clientX - box.left - view.gutter) / Math.max(1, box.width - view.gutter) * view.trace.wall;
    if (drag && drag.isOfMinimap && Math.abs(event.clientX - drag.x) > 4)
      view.lookAt(Math.min(ns, drag.ns), Math.max(ns, drag.ns));
    else if (event.type === "pointerdown")
      drag = {isOfMinimap: true, ns, x: event.clientX};
    else if (event.type === "pointerup")
      view.lookAt(ns - (view.to - view.from) / 2, ns + (view.to - view.from) / 2);
  };
  minimap.addEventListener("pointerdown", (event) => {
    minimap.setPointerCapture(event.pointerId);
    moveTo(event);
  });
  minimap.addEventListener("pointermove", (event) => drag && moveTo(event));
  minimap.addEventListener("pointerup", (event) => {
    moveTo(event);
    drag = null;
  });

  const keys = {
    w: () => view.zoom(0.7, pointer && pointer.x > view.gutter ? view.nsOf(pointer.x) : (view.from + view.to) / 2),
    s: () => view.zoom(1 / 0.7, pointer && pointer.x > view.gutter ? view.nsOf(pointer.x) : (view.from + view.to) / 2),
    a: () => view.pan(-0.15),
    d: () => view.pan(0.15),
    f: () => view.fit(),
    r: () => view.lookAt(0, view.trace.wall),
    x: () => {
      view.showsFlows = !view.showsFlows;
      view.redraw();
    },
    m: () => view.selected >= 0 && view.select({
      from: view.trace.start[view.selected],
      to: view.trace.end(view.selected),
      tracks: view.lines.filter((line) => line.track).map((line) => line.track)
    }),
    Escape: () => view.select(-1),
    ".": () => goTo(view.next(1)),
    ",": () => goTo(view.next(-1)),
    ArrowRight: () => goTo(view.selected < 0 ? view.firstSeen() : view.beside(view.selected, 1)),
    ArrowLeft: () => goTo(view.selected < 0 ? view.firstSeen() : view.beside(view.selected, -1)),
    ArrowUp: () => goTo(view.selected < 0 ? -1 : view.trace.parent[view.selected]),
    ArrowDown: () => goTo(view.selected < 0 ? view.firstSeen() : view.firstInside(view.selected)),
  };
  const goTo = (span) => span >= 0 && view.goTo(span);
  view.pressed = (key) => {
    const act = keys[key.length === 1 ? key.toLowerCase() : key];
    if (!act) return false;
    hideTip();
    act();
    return true;
  };
}

function hideTip() { byId("tip").hidden = true; }
function tipAt(event, text) {
  const tip = byId("tip");
  tip.textContent = text;
  tip.hidden = false;
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)) + "px";
  tip.style.top =
    (event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18) +
    "px";
}
function showTip(view, event, {x, y}) {
  const span = view.spanAt(x, y);
  if (span < 0) {
    const line = x < view.gutter ? view.lineAt(y + view.scroller.scrollTop) : null;
    return line && line.track ? tipAt(event, `${line.track.name}: ${grouped(line.track.count)} spans`) : hideTip();
  }
  const name = view.trace.name(span);
  tipAt(
    event,
    `${name.length > 300 ? name.slice(0, 299) + "\u2026" : name}\n${
      timeOfTrace(view.trace, view.trace.duration[span])}`);
}
