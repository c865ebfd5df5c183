// SPDX-License-Identifier: Apache-2.0
// Looking for names in every view: spans that have all the words in their name, op, scope or kernel stand out.
// A row's name says more than its spans do: "lstm_cell/matmul", "group: mul #2". Of all calls the longest is selected.
function lookFor(name) {
  const plain = name.replace(/ #\d+$/, "");
  for (const text of [name, plain, plain.split("/").pop(), plain.split("/")[0]]) {
    byId("search").value = text;
    markFound();
    if (!timeline || timeline.matchedLabels.size) break;
  }
  showView("timeline");
  focusView();
  if (!timeline) return;
  const {trace, matches} = timeline, exact = trace.strings.indexOf(byId("search").value),
                isOne =
                  timeline.matchedLabels.has(exact) ? (i) => trace.label(i) === exact : (i) => matches[trace.site[i]];
  let longest = -1;
  for (let i = 0; matches && i < trace.size; ++i)
    if (isOne(i) && (longest < 0 || trace.duration[i] > trace.duration[longest])) longest = i;
  if (longest < 0) return;
  timeline.goTo(longest);
  byId("found").textContent += ", at the longest";
}

function search() {
  const text = byId("search").value;
  if (opsTable) byId("ops-filter").value = text, opsTable.filter(text);
  if (sandwich) sandwich.table.filter(text);
  markFound();
}

function markFound() {
  const text = byId("search").value.trim().toLowerCase(), words = text.split(/\s+/).filter(Boolean),
        found = byId("found");
  byId("search-key").hidden = Boolean(text);
  if (!timeline) return;
  const {trace} = timeline, {sites, strings} = trace;
  timeline.matches = null;
  timeline.matchedLabels = new Set();
  found.textContent = "";
  if (words.length) {
    const lower = strings.map((string) => string.toLowerCase()), matches = new Uint8Array(trace.labelOfSite.length);
    trace.labelOfSite.forEach((label, site) => {
      const all = [lower[label], lower[sites.op[site]], lower[sites.scope[site]], lower[sites.kernel[site]]].join("\n");
      if (lower[label] !== text && !words.every((word) => all.includes(word))) return;
      matches[site] = 1;
      timeline.matchedLabels.add(label);
    });
    let count = 0, ns = 0;
    for (let i = 0; i < trace.size; ++i)
      if (matches[trace.site[i]]) ++count, ns += trace.duration[i];
    timeline.matches = matches;
    found.textContent = count ? `${grouped(count)}, \u2248 ${roundTime(ns)}` : "none";
  }
  timeline.redraw();
  for (const view of [flame, sandwich && sandwich.callers, sandwich && sandwich.callees])
    if (view) view.draw();
}

function goToFound(step) {
  if (!timeline) return;
  const span = timeline.next(step);
  if (span >= 0) timeline.goTo(span);
}

function listenToSearch() {
  const input = byId("search");
  input.addEventListener("input", search);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      if (currentView() !== "timeline" && currentView() !== "ops") showView("timeline");
      goToFound(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape") {
      input.value = "";
      search();
      input.blur();
      focusView();
    } else
      return;
    event.preventDefault();
    event.stopPropagation();
  });
}
