// Panel of the selected cell: its value, its noise interval, its last hours, and its record as published.

import { chart } from "./chart.js";
import { element } from "./dom.js";
import { parseExact } from "./exact.js";
import { noiseOf, shortOf, stateOf, WHY } from "./texts.js";

export class Panel {
  #model;
  #node;
  #history = new Map(); // slot -> release of the chosen cell
  #requested = "";
  #drawnKey = "";

  constructor(model, node) {
    this.#model = model;
    this.#node = node;
  }

  draw() {
    const { selected, slot, slots, policy } = this.#model;
    if (selected === null) {
      if (this.#drawnKey === "") return;
      this.#drawnKey = this.#requested = "";
      this.#node.replaceChildren(element("p", { class: "hint" }, "Choose a hexagon on the map or in the table to see its noise and its last hours."));
      return;
    }
    const latest = slots.length === 0 ? "" : slots[slots.length - 1].slot;
    const request = `${policy} ${selected} ${latest}`;
    if (request !== this.#requested) this.#load(request, selected, policy);
    const releases = this.#releases(selected);
    const key = `${request} ${slot} ${[...releases.values()].map((each) => each.release_id).join()}`;
    if (key === this.#drawnKey) return;
    this.#drawnKey = key;
    const open = this.#node.querySelector("details[open]") !== null;
    this.#node.replaceChildren(...this.#view(selected, releases, open));
  }

  // The fetched history, updated with the releases of the stream.
  #releases(cell) {
    const found = new Map(this.#history);
    for (const { slot } of this.#model.slots) {
      const release = this.#model.releases(slot).get(cell);
      if (release !== undefined) found.set(slot, release);
    }
    return found;
  }

  async #load(request, cell, policy) {
    const same = this.#requested.split(" ")[1] === cell;
    this.#requested = request;
    if (!same) this.#history = new Map();
    try {
      const answer = await fetch(`api/v1/cells/${cell}?${new URLSearchParams({ policy })}`);
      if (!answer.ok || this.#requested !== request) return;
      const { releases } = parseExact(await answer.text());
      this.#history = new Map(releases.map((each) => [`${each.date}T${each.slot}`, each]));
      this.#model.changed();
    } catch {
      this.#requested = ""; // retried with the next change
    }
  }

  #view(cell, releases, open) {
    const { slots, range, slot, unit } = this.#model;
    const release = releases.get(slot);
    return [
      element("p", { class: "cell-id" }, element("code", {}, cell), element("button", { type: "button", class: "close", "aria-label": "Close this hexagon", onclick: () => this.#model.choose(cell) }, "×")),
      ...value(release),
      element("h3", {}, "Its last hours"),
      chart(slots, releases, range, slot, unit),
      hours(slots, releases),
      release === undefined ? null : record(release, open),
    ].filter((part) => part !== null);
  }
}

function value(release) {
  if (release === undefined) return [element("p", { class: "figure" }, "Nothing was published for this hour.")];
  if (release.mean == null) {
    return [element("p", { class: "figure" }, element("strong", {}, stateOf(release))), element("p", {}, WHY[release.status] ?? "")];
  }
  return [
    element("p", { class: "figure" }, element("strong", { id: "cell-mean" }, release.mean), ` ${release.unit ?? ""}`),
    element("p", {}, "Noise, 95 %: ", element("span", { class: "numbers", id: "cell-interval" }, noiseOf(release))),
  ];
}

function hours(slots, releases) {
  const rows = [...slots].reverse().map((slot) => {
    const release = releases.get(slot.slot);
    const mean = release === undefined ? "–" : release.mean ?? stateOf(release);
    const noise = release?.interval95 == null ? "" : release.interval95.join(" to ");
    return element("tr", {}, element("th", { scope: "row" }, shortOf(slot)), element("td", {}, mean), element("td", {}, noise));
  });
  return element("details", {}, element("summary", {}, "As a list"), element("table", { class: "hours" }, element("thead", {}, element("tr", {}, ...["hour", "mean", "noise, 95 %"].map((each) => element("th", { scope: "col" }, each)))), element("tbody", {}, ...rows)));
}

// Every field of the record, also unknown ones.
function record(release, open) {
  const rows = Object.entries(release).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, plain(value))]);
  return element("details", { class: "record", open }, element("summary", {}, "The record as published"), element("dl", {}, ...rows));
}

function plain(value) {
  if (value === null || typeof value !== "object") return String(value);
  const parts = Array.isArray(value) ? value.map(plain) : Object.entries(value).map(([name, each]) => `${name} ${plain(each)}`);
  return parts.join(", ");
}
