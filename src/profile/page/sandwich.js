// SPDX-License-Identifier: Apache-2.0
// Sandwich: every name with its own and its whole time, and for one of them its callers and callees.
let sandwich = null;

function setUpSandwich(trace) {
  const tracks = trace.tracks.filter((track) => track.count), tree = callTree(trace, tracks), {parts} = partLists(tree),
        rows = [], byLabel = new Map();
  tree.label.forEach((label, node) => {
    if (!byLabel.has(label)) {
      byLabel.set(
        label, {label, name: trace.strings[label], short: trace.shorts[label], nodes: [], total: 0, self: 0, count: 0});
      rows.push(byLabel.get(label));
    }
    const row = byLabel.get(label);
    row.self += tree.self[node], row.count += tree.count[node];
    row.nodes.push(node);
  });
  // A call inside of another of its name is in that one's time already.
  const isInside = (node) => {
    for (let p = tree.parent[node]; p >= 0; p = tree.parent[p])
      if (tree.label[p] === tree.label[node]) return true;
    return false;
  };
  for (const row of rows) {
    row.outer = row.nodes.filter((node) => !isInside(node));
    row.total = row.outer.reduce((sum, node) => sum + tree.total[node], 0);
  }
  const whole = rows.reduce((sum, row) => sum + Math.max(0, row.self), 0);
  const time = (title, key, why) => ({title, why, value: (row) => row[key], show: (row, ns) => msOfTrace(trace, ns)});
  const table = new Table(
    "Names",
    [
      {
        title: "Name",
        isWord: true,
        value: (row) => row.name,
        show: (row) => element(
          "span", {},
          element("button", {type: "button", class: "link", onclick: () => openSandwich(row.label)}, row.short),
          row.short !== row.name ? element("small", {}, row.name) : null)
      },
      time("Self, ms", "self", "In none of the spans inside of it"),
      {
        title: "Of all self time",
        why: "Of the self time of all spans of all tracks",
        value: (row) => row.self,
        show: (row, ns) => aboutShare(Math.max(0, ns), whole)
      },
      time("Total, ms", "total", "With the spans inside of it"),
      {title: "Calls", value: (row) => row.count, show: (row, n) => grouped(n)},
    ],
    rows, {
      hidesCaption: true,
      sortBy: 1,
      onRow: (made, row) => {
        made.dataset.label = row.label;
        made.addEventListener("click", () => openSandwich(row.label));
      },
      onDraw: () => sandwich && sandwich.mark()
    });
  byId("sandwich-list").replaceChildren(table.element);
  sandwich = {
    table,
    tree,
    parts,
    byLabel,
    trace,
    label: -1,
    callers: new FlameView(byId("callers-scroller"), {isUpside: true, onOpen: openSandwich}),
    callees: new FlameView(byId("callees-scroller"), {onOpen: openSandwich}),
    mark() {
      for (const row of byId("sandwich-list").querySelectorAll("tr[data-label]"))
        row.setAttribute("aria-selected", Number(row.dataset.label) === this.label);
    }
  };
  if (rows.length) openSandwich(table.shown[0].label, true);
}

// The callees or callers of the nodes of one name: nodes of one name become one.
function merged(tree, roots, nextOf) {
  const made = {label: [], kind: [], total: [], self: [], count: [], parts: []};
  const add = (groups) => [...groups.values()].map((members) => {
    const node = made.label.length, first = members[0].node;
    made.label.push(tree.label[first]), made.kind.push(tree.kind[first]);
    made.total.push(members.reduce((sum, member) => sum + member.weight, 0));
    made.self.push(members.reduce((sum, member) => sum + tree.self[member.node], 0)),
      made.count.push(members.reduce((sum, member) => sum + tree.count[member.node], 0));
    made.parts.push([]);
    return {node, members};
  });
  const group = (members) => {
    const groups = new Map();
    for (const member of members) {
      const label = tree.label[member.node];
      groups.has(label) ? groups.get(label).push(member) : groups.set(label, [member]);
    }
    return groups;
  };
  const first = add(group(roots));
  for (let open = first; open.length;) {
    const below = [];
    for (const {node, members} of open) {
      const inside = add(group(members.flatMap(nextOf)));
      made.parts[node] = inside.map((one) => one.node);
      below.push(...inside);
    }
    open = below;
  }
  return {made, roots: first.map(({node}) => node)};
}

function openSandwich(label, isQuiet) {
  if (!sandwich || !sandwich.byLabel.has(label)) return;
  const {tree, parts, byLabel, trace} = sandwich, {outer, name, count} = byLabel.get(label),
                               roots = outer.map((node) => ({node, weight: tree.total[node]}));
  sandwich.label = label;
  if (!isQuiet) showView("sandwich");
  byId("sandwich-name").textContent = `${name}: ${grouped(count)} calls. Above who called it, below what it called`;
  const show = (view, {made, roots}) =>
    view.show(framesOf(trace, roots, (node) => made.parts[node], (node) => ({
                                                                   label: made.label[node],
                                                                   kind: made.kind[node],
                                                                   total: made.total[node],
                                                                   self: Math.max(0, made.self[node]),
                                                                   count: made.count[node]
                                                                 })));
  show(
    sandwich.callees,
    merged(tree, roots, ({node}) => parts[node].map((part) => ({node: part, weight: tree.total[part]}))));
  show(
    sandwich.callers,
    merged(tree, roots, ({node, weight}) => tree.parent[node] < 0 ? [] : [{node: tree.parent[node], weight}]));
  byId("callers-scroller").scrollTop = 1e7;  // the name itself is at the bottom
  sandwich.mark();
}
