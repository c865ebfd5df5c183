// SPDX-License-Identifier: Apache-2.0
// A table whose rows may be parts of rows above them: sorted among their siblings, filtered with those around them.
// A column: {title, value(row), show(row, value) -> text or element, isWord, why}
class Table {
  constructor(caption, columns, rows, options = {}) {
    this.columns = columns;
    this.options = {first: 300, sortBy: -1, isDescending: true, ...options};
    this.words = [];
    this.sortBy = this.options.sortBy;
    this.isDescending = this.options.isDescending;
    this.roots = [];
    const around = [];
    rows.forEach((row, number) => {
      const node = {row, number, parts: []};
      const depth = Math.min(row.depth || 0, around.length);
      around.length = depth;
      (depth ? around[depth - 1].parts : this.roots).push(node);
      around.push(node);
    });
    this.body = element("tbody");
    this.heads = columns.map(
      (column, c) => element(
        "th", {scope: "col", class: column.isWord && "word", "aria-sort": "none", title: column.why},
        element("button", {type: "button", onclick: () => this.sort(c)}, column.title)));
    this.more = element("button", {type: "button", class: "link"});
    this.more.addEventListener("click", () => {
      this.options.first = Infinity;
      this.draw();
    });
    this.table = element(
      "table", {class: "grows"}, element("caption", {class: options.hidesCaption && "unseen"}, caption),
      element("thead", {}, element("tr", {}, ...this.heads)), this.body);
    this.element = element("div", {}, this.table, element("p", {}, this.more));
    this.draw();
  }

  // Brings a row into view and marks it; false where there is none.
  goTo(isRow) {
    if (this.words.length) this.filter("");
    const at = this.shown.findIndex(isRow);
    if (at < 0) return false;
    if (at >= this.options.first) {
      this.options.first = Infinity;
      this.draw();
    }
    for (const row of this.body.querySelectorAll(".marked")) row.classList.remove("marked");
    const row = this.body.rows[at];
    row.classList.add("marked");
    row.scrollIntoView({block: "center"});
    (row.querySelector("button") || row).focus({preventScroll: true});
    return true;
  }

  sort(column) {
    this.isDescending = this.sortBy === column ? !this.isDescending : !this.columns[column].isWord;
    this.sortBy = column;
    this.draw();
  }

  filter(text) {
    this.words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.draw();
  }

  matches(node) {
    const name = String(node.row.name).toLowerCase();
    return this.words.every((word) => name.includes(word));
  }

  // Nodes in the order in which they are shown.
  list() {
    const found = [];
    const value = this.sortBy < 0 ? null : this.columns[this.sortBy].value, sign = this.isDescending ? -1 : 1;
    const order = (a, b) => {
      const x = value(a.row), y = value(b.row);
      return (x < y ? -1 : x > y ? 1 : 0) * sign || a.number - b.number;
    };
    const add = (nodes) => {
      let any = false;
      for (const node of value ? nodes.slice().sort(order) : nodes) {
        const at = found.push(node) - 1;
        const inside = add(node.parts);
        if (inside || this.matches(node))
          any = true;
        else
          found.length = at;
      }
      return any;
    };
    add(this.roots);
    return found;
  }

  draw() {
    this.heads.forEach(
      (head, c) => head.setAttribute(
        "aria-sort",
        c !== this.sortBy     ? "none"
          : this.isDescending ? "descending"
                              : "ascending"));
    const all = this.list();
    this.shown = all.map((node) => node.row);
    this.body.replaceChildren(...all.slice(0, this.options.first).map(({row}) => {
      const made = element("tr", {}, ...this.columns.map((column, c) => {
        const value = column.value(row), shown = column.show ? column.show(row, value) : value;
        return c
          ? element(
              "td", {class: column.isWord && "word", "data-value": typeof value === "number" ? value : undefined},
              shown)
          : element(
              "th", {scope: "row", title: String(row.name), style: `padding-left:${10 + 16 * (row.depth || 0)}px`},
              shown);
      }));
      if (this.options.onRow) this.options.onRow(made, row);
      return made;
    }));
    const hidden = all.length - this.options.first;
    this.more.hidden = !(hidden > 0);
    this.more.textContent = `Show ${grouped(hidden)} more rows`;
    if (!all.length)
      this.body.append(element(
        "tr", {},
        element(
          "td", {colspan: this.columns.length}, this.words.length ? "No row has that in its name." : "No rows.")));
    if (this.options.onDraw) this.options.onDraw(all.length);
  }
}

// A table that stands as it is: heads, and rows of texts or elements; the first column names the row.
function plainTable(caption, heads, rows, attributes = {}) {
  return element(
    "table", attributes, element("caption", {}, caption),
    element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", {scope: "col"}, head)))),
    element(
      "tbody", {},
      ...rows.map(
        ([name, ...cells]) => element(
          "tr", {}, element("th", {scope: "row"}, name),
          ...cells.map((cell) => cell instanceof HTMLTableCellElement ? cell : element("td", {}, cell))))));
}

// A time to the nanosecond, in ms.
const timeCell = (ns) => element("td", {"data-value": ns}, exactMs(ns));
