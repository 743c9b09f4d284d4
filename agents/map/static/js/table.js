// The same data as a table: for screen readers, keyboard users, and readers who want the digits.

import { element } from "./dom.js";
import { dayOf, hoursOf, stateOf } from "./texts.js";

const number = (read) => ({ text: read, order: (release) => Number(read(release) ?? NaN), numeric: true });
const words = (read) => ({ text: read, order: read, numeric: false });

const COLUMNS = [
  ["hexagon (H3)", words((release) => release.cell)],
  ["state", words(stateOf)],
  ["mean", number((release) => release.mean)],
  ["noise from", number((release) => release.interval95?.[0])],
  ["noise to", number((release) => release.interval95?.[1])],
  ["noise scale", number((release) => release.noise?.scale)],
  ["raw", number((release) => release.raw)],
  ["unit", words((release) => release.unit)],
  ["epsilon", number((release) => release.epsilon)],
  ["published", words((release) => release.released_at)],
];

export class Table {
  #model;
  #node;
  #sortColumn = 0;
  #descending = false;
  #drawnKey = "";

  constructor(model, node) {
    this.#model = model;
    this.#node = node;
    this.caption = element("caption");
    this.head = element("tr", {}, ...COLUMNS.map(([name, column], i) => this.#heading(name, column, i)));
    this.body = element("tbody");
    node.append(element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of hexagons" }, element("table", { class: "all" }, this.caption, element("thead", {}, this.head), this.body)));
  }

  draw() {
    if (this.#node.hidden) return;
    const { shown, selected, policy } = this.#model;
    const key = `${policy} ${shown?.slot} ${this.#model.releases().size} ${selected} ${this.#sortColumn} ${this.#descending}`;
    if (key === this.#drawnKey) return;
    this.#drawnKey = key;
    const rows = [...this.#model.releases().values()].sort((one, other) => this.#compare(one, other));
    this.caption.textContent = shown === null ? "No hour yet" : `${dayOf(shown.start)}, ${hoursOf(shown)}: ${rows.length} hexagons. Noise: in 95 of 100 cases.`;
    [...this.head.children].forEach((cell, i) => {
      if (i === this.#sortColumn) cell.setAttribute("aria-sort", this.#descending ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
    // Keep the focus on its hexagon: all rows are replaced.
    const focused = this.body.contains(document.activeElement) ? document.activeElement.dataset.cell : undefined;
    this.body.replaceChildren(...rows.map((release) => this.#row(release)));
    if (focused !== undefined) this.body.querySelector(`button[data-cell="${CSS.escape(focused)}"]`)?.focus();
  }

  #heading(name, column, i) {
    const sort = () => {
      this.#descending = i === this.#sortColumn ? !this.#descending : column.numeric;
      this.#sortColumn = i;
      this.draw();
    };
    return element("th", { scope: "col", class: column.numeric ? "numeric" : null }, element("button", { type: "button", onclick: sort }, name));
  }

  #row(release) {
    const { selected } = this.#model;
    const chosen = release.cell === selected;
    const choose = element("button", { type: "button", "data-cell": release.cell, "aria-pressed": String(chosen), onclick: () => this.#model.choose(release.cell) }, release.cell);
    const cells = COLUMNS.slice(1).map(([, column]) => element("td", { class: column.numeric ? "numeric" : null }, column.text(release) ?? ""));
    return element("tr", { class: chosen ? "chosen" : null, "data-status": release.status }, element("th", { scope: "row" }, choose), ...cells);
  }

  // Rows without a value come last in either order.
  #compare(one, other) {
    const [, column] = COLUMNS[this.#sortColumn];
    const [a, b] = [column.order(one), column.order(other)];
    const [noA, noB] = [a, b].map((each) => each === undefined || Number.isNaN(each));
    if (noA || noB) return noA - noB || one.cell.localeCompare(other.cell);
    const order = column.numeric ? a - b : a.localeCompare(b);
    return (this.#descending ? -order : order) || one.cell.localeCompare(other.cell);
  }
}
