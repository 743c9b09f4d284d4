// The same data as a table: for screen readers, keyboard users, and readers who want the digits.

import { AREAS } from "./alarms.js";
import { element } from "./dom.js";
import { linkToShown } from "./links.js";
import { spanTitle } from "./spans.js";
import { stateOf, statusOf } from "./values.js";
import { say } from "./words.js";

const number = (read) => ({ text: read, order: (record) => Number(read(record) ?? NaN), numeric: true });
const words = (read) => ({ text: read, order: read, numeric: false });

const COLUMNS = {
  releases: [
    [say`hexagon (H3)`, words((release) => release.cell)],
    [say`state`, words(stateOf)],
    [say`mean`, number((release) => release.mean)],
    [say`noise from`, number((release) => release.interval95?.[0])],
    [say`noise to`, number((release) => release.interval95?.[1])],
    [say`noise scale`, number((release) => release.noise?.scale)],
    [say`raw`, number((release) => release.raw)],
    [say`unit`, words((release) => release.unit)],
    [say`epsilon`, number((release) => release.epsilon)],
    [say`published`, words((release) => release.released_at)],
  ],
  estimates: [
    [say`hexagon (H3)`, words((estimate) => estimate.cell)],
    [say`stage`, words(stateOf)],
    [say`mean`, number((estimate) => estimate.mean?.value)],
    [say`from`, number((estimate) => estimate.mean?.interval95[0])],
    [say`to`, number((estimate) => estimate.mean?.interval95[1])],
    [say`road`, number((estimate) => estimate.road.value)],
    [say`road from`, number((estimate) => estimate.road.interval95[0])],
    [say`road to`, number((estimate) => estimate.road.interval95[1])],
    [say`surprise, z`, number((estimate) => estimate.residual_z)],
    [say`alarm`, words((estimate) => AREAS[estimate.alarm])],
    [say`unit`, words((estimate) => estimate.unit)],
  ],
  running: [
    [say`hexagon (H3)`, words((running) => running.cell)],
    [say`mean`, number((running) => running.mean?.value)],
    [say`from`, number((running) => running.mean?.interval95[0])],
    [say`to`, number((running) => running.mean?.interval95[1])],
    [say`unit`, words((running) => running.unit)],
    [say`hours`, number((running) => running.slots)],
    [say`of`, words((running) => running.of)],
    [say`stage`, words(stateOf)],
    [say`since`, words((running) => running.start)],
    [say`until`, words((running) => running.end)],
  ],
  continual: [
    [say`hexagon (H3)`, words((release) => release.cell)],
    [say`state`, words(stateOf)],
    [say`mean since the start`, number((release) => release.mean)],
    [say`noise from`, number((release) => release.interval95?.[0])],
    [say`noise to`, number((release) => release.interval95?.[1])],
    [say`unit`, words((release) => release.unit)],
    [say`values`, number((release) => release.running.count)],
    [say`sum`, number((release) => release.running.sum?.value)],
    [say`sum from`, number((release) => release.running.sum?.interval95?.[0])],
    [say`sum to`, number((release) => release.running.sum?.interval95?.[1])],
    [say`since`, words((release) => release.running.horizon)],
    [say`guaranteed until`, words((release) => release.running.last_date)],
    [say`published`, words((release) => release.released_at)],
  ],
};

const MEANING = {
  releases: say`Noise: in 95 of 100 cases.`,
  estimates: say`From and to: in 95 of 100 cases.`,
  running: say`From and to: in 95 of 100 cases.`,
  continual: say`Each mean and sum is of all hours since the horizon's start. Noise: in 95 of 100 cases.`,
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
    node.append(element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": say`Table of hexagons` }, element("table", { class: "all" }, this.caption, element("thead", {}, this.head), this.body)));
  }

  draw() {
    if (this.#node.hidden) return;
    const { shown, selected, policy, kind, layer } = this.#model;
    const { places } = this.#model;
    const title = shown === null ? say`No hour yet` : spanTitle(this.#model);
    const key = `${places !== null} ${policy} ${kind} ${title} ${shown?.slot} ${layer.version} ${selected} ${this.#sortColumn} ${this.#descending}`;
    if (key === this.#drawnKey) return;
    this.#drawnKey = key;
    this.#setColumns(kind, places);
    const rows = [...this.#model.records().values()].sort((one, other) => this.#compare(one, other));
    this.caption.textContent = shown === null ? title : say`${title}: ${rows.length} hexagons. ${MEANING[kind]}`;
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
    const columns = places === null ? COLUMNS[kind] : [first, [say`place`, words((record) => places.words(record.cell) ?? undefined)], ...others];
    this.#columns = columns;
    this.#sortColumn = 0;
    this.#descending = false;
    this.head.replaceChildren(...columns.map(([name, column], i) => this.#heading(name, column, i)), element("th", { scope: "col" }, say`link`));
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
    cells.push(element("td", {}, element("a", { href: linkToShown(this.#model, record.cell), "aria-label": say`Link to hexagon ${record.cell}` }, say`link`)));
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
