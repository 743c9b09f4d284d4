// Panel of the selected cell: its value, its interval, its last days, and its record as published.

import { explanation, summary } from "./card.js";
import { CellAnswers } from "./cell_answers.js";
import { chart } from "./chart.js";
import { differenceWords } from "./compare.js";
import { element } from "./dom.js";
import { parseExact } from "./exact.js";
import { copyButton, linkToShown } from "./links.js";
import { placeOf } from "./place_card.js";
import { runningTable } from "./running_card.js";
import { shortOf } from "./texts.js";
import { usualWeek } from "./week.js";
import { intervalOf, rangeOf, slotOf, stateOf, valueOf } from "./values.js";
import { say } from "./words.js";

const HINT = say`Choose a hexagon on the map or in the table to see its speed, how certain it is, and its last days.`;
const PATHS = { releases: "", estimates: "/estimates", continual: "/continual" };
const KEYS = {
  estimates: say`Line and band: the mean of the hour, or the road where no bus counted, and its 95 % interval; dashed where predicted. Rings: releases, with their noise.`,
  releases: say`Dots and band: means, and their noise in 95 of 100 cases.`,
  continual: say`Dots and band: means since the horizon's start, and their noise in 95 of 100 cases.`,
};
const COLUMNS = {
  releases: [say`hour`, say`mean`, say`noise, 95 %`],
  estimates: [say`hour`, say`mean`, "95 %", say`stage`],
  continual: [say`until`, say`mean`, say`noise, 95 %`],
};
const NONE = Object.fromEntries(Object.keys(PATHS).map((kind) => [kind, new Map()]));

export class Panel {
  #model;
  #node;
  #history = NONE; // kind -> slot -> record of the selected cell
  #answers;
  #requested = "";
  #drawnKey = "";

  constructor(model, node) {
    this.#model = model;
    this.#answers = new CellAnswers(model);
    this.#node = node;
  }

  draw() {
    const { selected, slot, policy, kind, layers, windows } = this.#model;
    const { hourSlots: slots, hours } = this.#model;
    if (selected === null) {
      if (this.#drawnKey === "") return;
      this.#drawnKey = this.#requested = "";
      this.#node.replaceChildren(element("p", { class: "hint" }, HINT));
      return;
    }
    const latest = slots.length === 0 ? "" : slots[slots.length - 1].slot;
    const request = `${policy} ${selected} ${hours} ${latest}`;
    if (request !== this.#requested) this.#load(request, selected, policy);
    this.#answers.request(selected);
    const found = Object.fromEntries(Object.keys(PATHS).map((each) => [each, this.#records(each, selected)]));
    const versions = [...Object.values(layers), ...windows.values()].map(({ version }) => version);
    const key = `${request} ${this.#model.other} ${this.#model.other === null ? "" : this.#model.otherRecords().size} ${kind} ${this.#model.window?.name} ${slot} ${versions} ${Object.values(found).map(({ size }) => size)} ${this.#answers.version} ${this.#model.places !== null}`;
    if (key === this.#drawnKey) return;
    this.#drawnKey = key;
    const open = [...this.#node.querySelectorAll("details[open]")].map((each) => each.className);
    this.#node.replaceChildren(...this.#view(selected, found));
    for (const each of this.#node.querySelectorAll("details")) each.open = open.includes(each.className);
  }

  // The fetched history, updated with the records of the stream.
  #records(kind, cell) {
    const layer = this.#model.layers[kind];
    const found = new Map(this.#history[kind]);
    for (const { slot } of layer.slots) {
      const record = layer.records(slot).get(cell);
      if (record !== undefined) found.set(slot, record);
    }
    return found;
  }

  async #load(request, cell, policy) {
    if (this.#requested.split(" ").slice(0, 2).join() !== `${policy},${cell}`) {
      this.#history = NONE;
    }
    this.#requested = request;
    // Both kinds are in the chart of estimates. What has no record of the cell is not asked for.
    const kinds = Object.keys(PATHS).filter((kind) => (kind === "releases" || this.#model.hours === kind) && this.#model.layers[kind].cells.includes(cell));
    try {
      for (const kind of kinds) {
        const answer = await fetch(`api/v1/cells/${cell}${PATHS[kind]}?${new URLSearchParams({ policy })}`);
        if (!answer.ok || this.#requested !== request) return;
        const records = parseExact(await answer.text())[kind];
        this.#history = { ...this.#history, [kind]: new Map(records.map((each) => [slotOf(each), each])) };
      }
      this.#model.changed();
    } catch {
      this.#requested = ""; // retried with the next change
    }
  }

  #view(cell, found) {
    const { slot, unit, windows, window } = this.#model;
    const { hourSlots: slots, hours: kind } = this.#model; // of the chart and the list
    const { range } = this.#model.layers[kind];
    const records = found[kind];
    const running = [...windows.values()].map((each) => each.records().get(cell)).filter((each) => each !== undefined);
    const isRunning = this.#model.kind === "running";
    const mean = isRunning ? (window.records().get(cell) ?? null) : null;
    const record = isRunning ? (mean ?? undefined) : records.get(slot);
    return [
      element("p", { class: "cell-id" }, element("code", { hidden: (this.#model.places?.words(cell) ?? null) !== null }, cell), ...copyButton(say`Copy link`, () => linkToShown(this.#model, cell), { id: "copy-cell-link" }), element("button", { type: "button", class: "close", "aria-label": say`Close this hexagon`, onclick: () => this.#model.select(cell) }, "×")),
      ...placeOf(cell, this.#model.places),
      ...summary(record, this.#model.range),
      ...differenceWords(this.#model, cell),
      ...runningTable(running, mean),
      element("h3", {}, say`Its last days`),
      kind === "estimates" ? chart(this.#model.allSlots, records, found.releases, { range, shown: slot, unit, mean }) : chart(slots, records, new Map(), { range, shown: slot, unit, mean }),
      element("p", { class: "key" }, KEYS[kind], mean === null ? null : ` ${say`Box: the running mean and its interval, over its hours.`}`),
      ...usualWeek(records, range, unit),
      ...explanation(record, found.releases.get(slot)),
      list(slots, records, kind),
      ...(slot === null ? [] : this.#answers.view(slot.slice(11))),
      record === undefined ? null : published(record),
    ].filter((part) => part !== null);
  }
}

function list(slots, records, kind) {
  const estimates = kind === "estimates";
  const rows = [...slots].reverse().map((slot) => {
    const record = records.get(slot.slot);
    const value = record === undefined ? "–" : valueOf(record) ?? stateOf(record);
    const interval = record === undefined ? null : intervalOf(record);
    const cells = [value, interval === null ? "" : rangeOf(interval)];
    if (estimates) cells.push(record === undefined ? "" : stateOf(record));
    return element("tr", {}, element("th", { scope: "row" }, shortOf(slot)), ...cells.map((each) => element("td", {}, each)));
  });
  const head = element("tr", {}, ...COLUMNS[kind].map((each) => element("th", { scope: "col" }, each)));
  return element("details", { class: "list" }, element("summary", {}, say`As a list`), element("div", { class: "answers", tabindex: 0, role: "region", "aria-label": say`Table of this hexagon's hours` }, element("table", { class: "hours" }, element("thead", {}, head), element("tbody", {}, ...rows))));
}

// Every field of the record, also unknown ones.
function published(record) {
  const rows = Object.entries(record).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, plain(value))]);
  return element("details", { class: "record" }, element("summary", {}, say`The record as published`), element("dl", {}, ...rows));
}

function plain(value) {
  if (value === null || typeof value !== "object") return String(value);
  const parts = Array.isArray(value) ? value.map(plain) : Object.entries(value).map(([name, each]) => `${name} ${plain(each)}`);
  return parts.join(", ");
}
