// The same data as a table: for screen readers, keyboard users, and readers who want the digits.

import { element } from "./dom.js";
import { linkToShown } from "./links.js";
import { spanTitle } from "./spans.js";
import { stateOf, statusOf } from "./values.js";

const number = (read) => ({ text: read, order: (record) => Number(read(record) ?? NaN), numeric: true });
const words = (read) => ({ text: read, order: read, numeric: false });

const COLUMNS = {
  releases: [
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
  ],
  estimates: [
    ["hexagon (H3)", words((estimate) => estimate.cell)],
    ["stage", words(stateOf)],
    ["road", number((estimate) => estimate.road.value)],
    ["from", number((estimate) => estimate.road.interval95[0])],
    ["to", number((estimate) => estimate.road.interval95[1])],
    ["mean", number((estimate) => estimate.mean?.value)],
    ["surprise, z", number((estimate) => estimate.residual_z)],
    ["unit", words((estimate) => estimate.unit)],
  ],
  running: [
    ["hexagon (H3)", words((running) => running.cell)],
    ["mean", number((running) => running.mean?.value)],
    ["from", number((running) => running.mean?.interval95[0])],
    ["to", number((running) => running.mean?.interval95[1])],
    ["unit", words((running) => running.unit)],
    ["hours", number((running) => running.slots)],
    ["of", words((running) => running.of)],
    ["stage", words(stateOf)],
    ["since", words((running) => running.start)],
    ["until", words((running) => running.end)],
  ],
  continual: [
    ["hexagon (H3)", words((release) => release.cell)],
    ["state", words(stateOf)],
    ["mean since the start", number((release) => release.mean)],
    ["noise from", number((release) => release.interval95?.[0])],
    ["noise to", number((release) => release.interval95?.[1])],
    ["unit", words((release) => release.unit)],
    ["values", number((release) => release.running.count)],
    ["sum", number((release) => release.running.sum?.value)],
    ["sum from", number((release) => release.running.sum?.interval95?.[0])],
    ["sum to", number((release) => release.running.sum?.interval95?.[1])],
    ["since", words((release) => release.running.horizon)],
    ["guaranteed until", words((release) => release.running.last_date)],
    ["published", words((release) => release.released_at)],
  ],
};

const MEANING = {
  releases: "Noise: in 95 of 100 cases.",
  estimates: "From and to: in 95 of 100 cases.",
  running: "From and to: in 95 of 100 cases.",
  continual: "Each mean and sum is of all hours since the horizon's start. Noise: in 95 of 100 cases.",
};

export class Table {
  #model;
  #node;
  #sortColumn = 0;
  #descending = false;
  #drawnKey = "";
  #columns = []; // of the kind on display
  #columnsOf = {};

  constructor(model, node) {
    this.#model = model;
    this.#node = node;
    this.caption = element("caption");
    this.head = element("tr");
    this.body = element("tbody");
    node.append(element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of hexagons" }, element("table", { class: "all" }, this.caption, element("thead", {}, this.head), this.body)));
  }

  draw() {
    if (this.#node.hidden) return;
    const { shown, selected, policy, kind, layer } = this.#model;
    const { places } = this.#model;
    const title = shown === null ? "No hour yet" : spanTitle(this.#model);
    const key = `${places !== null} ${policy} ${kind} ${title} ${shown?.slot} ${layer.version} ${selected} ${this.#sortColumn} ${this.#descending}`;
    if (key === this.#drawnKey) return;
    this.#drawnKey = key;
    this.#setColumns(kind, places);
    const rows = [...this.#model.records().values()].sort((one, other) => this.#compare(one, other));
    this.caption.textContent = shown === null ? title : `${title}: ${rows.length} hexagons. ${MEANING[kind]}`;
    [...this.head.children].forEach((cell, i) => {
      if (i === this.#sortColumn) cell.setAttribute("aria-sort", this.#descending ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
    // Keep the focus on its hexagon: all rows are replaced.
    const focused = this.body.contains(document.activeElement) ? document.activeElement.dataset.cell : undefined;
    this.body.replaceChildren(...rows.map((record) => this.#row(record)));
    if (focused !== undefined) this.body.querySelector(`button[data-cell="${CSS.escape(focused)}"]`)?.focus();
  }

  #setColumns(kind, places) {
    if (kind === this.#columnsOf.kind && places === this.#columnsOf.places) return;
    this.#columnsOf = { kind, places };
    const [first, ...others] = COLUMNS[kind];
    const columns = places === null ? COLUMNS[kind] : [first, ["place", words((record) => places.words(record.cell) ?? undefined)], ...others];
    this.#columns = columns;
    this.#sortColumn = 0;
    this.#descending = false;
    this.head.replaceChildren(...columns.map(([name, column], i) => this.#heading(name, column, i)), element("th", { scope: "col" }, "link"));
  }

  #heading(name, column, i) {
    const sort = () => {
      this.#descending = i === this.#sortColumn ? !this.#descending : column.numeric;
      this.#sortColumn = i;
      this.draw();
    };
    return element("th", { scope: "col", class: column.numeric ? "numeric" : null }, element("button", { type: "button", onclick: sort }, name));
  }

  #row(record) {
    const { selected } = this.#model;
    const chosen = record.cell === selected;
    const choose = element("button", { type: "button", "data-cell": record.cell, "aria-pressed": String(chosen), onclick: () => this.#model.select(record.cell) }, record.cell);
    const cells = this.#columns.slice(1).map(([, column]) => element("td", { class: column.numeric ? "numeric" : null }, column.text(record) ?? ""));
    cells.push(element("td", {}, element("a", { href: linkToShown(this.#model, record.cell), "aria-label": `Link to hexagon ${record.cell}` }, "link")));
    return element("tr", { class: chosen ? "chosen" : null, "data-status": statusOf(record) }, element("th", { scope: "row" }, choose), ...cells);
  }

  // Rows without a value come last in either order.
  #compare(one, other) {
    const [, column] = this.#columns[this.#sortColumn];
    const [a, b] = [column.order(one), column.order(other)];
    const [noA, noB] = [a, b].map((each) => each === undefined || Number.isNaN(each));
    if (noA || noB) return noA - noB || one.cell.localeCompare(other.cell);
    const order = column.numeric ? a - b : a.localeCompare(b);
    return (this.#descending ? -order : order) || one.cell.localeCompare(other.cell);
  }
}
