// Clusterings of a day: the centres, and the colours of the hexagons by the centre that is nearest to their speeds.

import { element, svgElement } from "./dom.js";
import { parseExact } from "./exact.js";
import { dateOf } from "./texts.js";
import { valueOf } from "./values.js";
import { say } from "./words.js";

// Okabe and Ito: distinguishable for colour-blind readers. More clusters than these get evenly spread hues.
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999"];
const GOLDEN_ANGLE = 137.5;

export const clusterColour = (index) => COLOURS[index] ?? `hsl(${(index * GOLDEN_ANGLE) % 360} 65% 50%)`;

export class Clusters {
  #model;
  #card;
  #node;
  #legend;
  #requested = "";
  #results = [];
  #chosen = null; // id that the reader chose; null: the newest
  #drawnKey = "";

  // legend: the card of the speeds' colours, which the map does not show while it shows clusters
  constructor(model, card, node, legend) {
    this.#model = model;
    this.#card = card;
    this.#node = node;
    this.#legend = legend;
  }

  draw() {
    const { clusterings, policy, hourLayer: layer, hourKind: kind } = this.#model;
    this.#card.hidden = clusterings.length === 0;
    const version = `${policy} ${clusterings}`;
    if (version !== this.#requested) this.#load(version);
    const result = this.#results.find((each) => each.clustering === this.#chosen) ?? this.#results[0] ?? null;
    if (result === null) this.#model.byCluster = false;
    this.#legend.hidden = this.#model.byCluster;
    const key = `${version} ${result?.clustering} ${kind} ${layer.version} ${this.#model.byCluster}`;
    if (key === this.#drawnKey) return;
    this.#drawnKey = key;
    this.#model.clusterOf = this.#model.byCluster ? this.#assign(result) : new Map();
    this.#node.replaceChildren(...(result === null ? [] : this.#view(result)));
  }

  async #load(version) {
    this.#requested = version;
    this.#results = [];
    if (this.#model.clusterings.length === 0) return;
    try {
      const answer = await fetch(`api/v1/clusterings?${new URLSearchParams({ policy: this.#model.policy })}`);
      if (!answer.ok || this.#requested !== version) return;
      this.#results = parseExact(await answer.text()).clusterings;
      this.#model.changed();
    } catch {
      this.#requested = ""; // retried with the next change
    }
  }

  // Cell -> index of the nearest centre over the hours in which the hexagon has a value.
  #assign({ date, slots, clusters }) {
    const centres = clusters.map(({ centre }) => centre.map(Number));
    const sums = new Map();
    slots.forEach((slot, at) => {
      this.#model.load(`${date}T${slot}`);
      for (const [cell, record] of this.#model.hourLayer.records(`${date}T${slot}`)) {
        const value = valueOf(record);
        if (value === null) continue;
        if (!sums.has(cell)) sums.set(cell, centres.map(() => 0));
        centres.forEach((centre, k) => (sums.get(cell)[k] += (centre[at] - Number(value)) ** 2));
      }
    });
    return new Map([...sums].map(([cell, squares]) => [cell, squares.indexOf(Math.min(...squares))]));
  }

  #view(result) {
    const colour = (event) => {
      this.#model.byCluster = event.target.checked;
      this.#model.changed();
      requestAnimationFrame(() => requestAnimationFrame(() => document.getElementById("by-cluster")?.focus())); // it is made anew
    };
    const counted = Object.values(result.users).reduce((sum, each) => sum + Number(each), 0);
    const hexagons = this.#model.clusterOf.size;
    return [
      this.#choice(result),
      element("p", {}, say`Typical days of ${counted} buses on ${dateOf(result.date)}, by private K-means: each cluster has a mean speed for each hour, with noise.`),
      element("p", {}, element("label", {}, element("input", { type: "checkbox", id: "by-cluster", checked: this.#model.byCluster, onchange: colour }), " ", say`Colour the hexagons by cluster`)),
      this.#model.byCluster ? element("p", { class: "hint", id: "by-cluster-text" }, hexagons ? say`Each of ${hexagons} hexagons has the colour of the cluster whose speeds are nearest to its own published speeds in these hours of ${dateOf(result.date)}.` : say`The hours of this day are not stored here any more.`) : null,
      element("div", { class: "answers", tabindex: 0, role: "region", "aria-label": say`Table of clusters` }, table(result)),
    ].filter((each) => each !== null);
  }

  #choice({ clustering }) {
    if (this.#results.length < 2) return null;
    const choose = (event) => {
      this.#chosen = event.target.value;
      this.#model.changed();
    };
    const options = this.#results.map((each) => element("option", { value: each.clustering, selected: each.clustering === clustering }, say`${dateOf(each.date)}, ${each.clusters.length} clusters (${each.clustering.slice(0, 6)})`));
    return element("p", { class: "choice" }, element("label", { for: "clustering" }, say`Clustering`), element("select", { id: "clustering", onchange: choose }, ...options));
  }
}

function table({ slots, clusters, unit }) {
  const head = clusters.map(({ users }, k) =>
    element("th", { scope: "col", class: "numeric" }, svgElement("svg", { viewBox: "0 0 14 14", width: 14, height: 14, "aria-hidden": "true" }, svgElement("rect", { x: 1, y: 1, width: 12, height: 12, rx: 3, fill: clusterColour(k) })), ` ${say`${k + 1}: about ${Math.round(Number(users))}`}`),
  );
  const rows = slots.map((slot, at) => element("tr", {}, element("th", { scope: "row" }, slot), ...clusters.map(({ centre }) => element("td", { class: "numeric" }, centre[at]))));
  return element("table", { class: "hours" }, element("thead", {}, element("tr", {}, element("th", { scope: "col" }, unit), ...head)), element("tbody", {}, ...rows));
}
