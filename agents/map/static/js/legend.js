// Legend of the colours and hatchings.

import { certainties } from "./certainty.js";
import { colourOf } from "./colour.js";
import { element, setText, svgElement } from "./dom.js";
import { windowPhrase } from "./spans.js";

const WIDTH = 320;
const STATES = [
  ["suppressed", "suppressed: too few vehicles"],
  ["exhausted", "the day's privacy budget is spent"],
  ["incomplete", "incomplete: records were lost"],
  ["deferred", "no query of its own: see its estimate"],
  [null, "nothing published for this hour"],
];
const FEW_VALUES = ["suppressed", "suppressed: too few values"]; // of a running sum, in which a vehicle has several
const EMPTY = "The colours and what they mean come with the first hour.";
const NO_MEAN = [null, "no mean in these hours"]; // of a running mean
const FAINTER = ["more noise", "less certain"]; // the interval of a release covers the noise alone
const SAMPLE = 0.55; // where on the colour scale the samples of the opacities are

export class Legend {
  #model;
  #node;
  #title;
  #strip;
  #drawnKey = "";

  // strip: where narrow pages have the colours, next to the map
  constructor(model, node, title, strip) {
    this.#model = model;
    this.#node = node;
    this.#title = title;
    this.#strip = strip;
  }

  draw() {
    const { range, unit, value, kind, window, layer, slots, byCluster } = this.#model;
    const name = kind === "running" ? window.name : "";
    this.#strip.hidden = slots.length === 0 || byCluster;
    const key = `${range} ${unit} ${value} ${kind} ${name} ${layer.hasDeferred} ${slots.length > 0}`;
    if (key === this.#drawnKey) return;
    this.#drawnKey = key;
    const ofModel = kind === "estimates" || (kind === "running" && window.of === "estimates");
    setText(this.#title, `${titleOf(kind, window, value)}, ${unit}`);
    if (slots.length === 0) {
      this.#node.replaceChildren(element("p", { class: "hint" }, EMPTY)); // the range is not known yet
      return;
    }
    this.#strip.replaceChildren(scale(range, unit, ` ${unit}`));
    this.#node.replaceChildren(scale(range, unit), ...samples(range, unit, FAINTER[Number(ofModel)]), element("ul", { class: "states" }, ...statesOf(kind, layer)));
  }
}

function titleOf(kind, window, value) {
  if (kind === "running") return `Mean ${value ?? "speed"}: ${windowPhrase(window)}`;
  if (kind === "continual") return `Mean ${value ?? "speed"} since the horizon's start`;
  if (value !== null) return kind === "estimates" ? `Estimated ${value}` : `Mean ${value}`;
  return kind === "estimates" ? "Speed of the road" : "Mean speed";
}

function statesOf(kind, layer) {
  if (kind === "estimates") return stages();
  if (kind === "running") return [swatch(NO_MEAN)];
  const states = kind === "continual" ? [FEW_VALUES, ...STATES.slice(1)] : STATES;
  return states.filter(([hatch]) => hatch !== "deferred" || layer.hasDeferred).map(swatch);
}

// The same colour in each opacity, and its meaning in one line.
function samples([low, high], unit, fainter) {
  const fill = colourOf(low + SAMPLE * (high - low), [low, high]);
  const shown = certainties(unit, [low, high]).map(([most, opacity]) => {
    const words = most === Infinity ? "wider" : `±${most}`;
    return element("li", {}, box(svgElement("rect", { class: "certainty", x: 1, y: 1, width: 58, height: 16, rx: 3, fill, "fill-opacity": opacity }), 60), words);
  });
  return [
    element("p", { class: "legend-text", id: "certainty-text" }, `Fainter: ${fainter} (95 % are within ± ${unit}).`),
    element("ul", { class: "certainties", "aria-labelledby": "certainty-text" }, ...shown),
  ];
}

function stages() {
  return [
    ["released", "solid edge: with releases of this hour"],
    ["predicted", "dashed edge: predicted from other hours and places"],
  ].map(([name, words]) => element("li", {}, box(svgElement("rect", { x: 1, y: 1, width: 24, height: 16, rx: 3, class: name })), words));
}

// last: follows the last number
function scale(range, unit, last = "") {
  const [low, high] = range;
  const parts = 64;
  const bars = Array.from({ length: parts }, (_, i) =>
    svgElement("rect", {
      x: (i * WIDTH) / parts,
      width: WIDTH / parts + 0.5,
      height: 14,
      fill: colourOf(low + ((i + 0.5) / parts) * (high - low), range),
    }),
  );
  const bar = svgElement("svg", { viewBox: `0 0 ${WIDTH} 14`, preserveAspectRatio: "none", class: "scale", "aria-hidden": "true" }, ...bars);
  const middle = Number(((low + high) / 2).toPrecision(6));
  const ticks = [`${low} or less`, `${middle}`, `${high} or more${last}`].map((each) => element("span", {}, each));
  return element(
    "div",
    { role: "img", "aria-label": `Colours from dark violet, ${low} ${unit} or less, over green to yellow, ${high} ${unit} or more` },
    bar,
    element("div", { class: "ticks" }, ...ticks),
  );
}

function swatch([hatch, words]) {
  const fill = hatch === null ? "none" : `url(#hatch-${hatch})`;
  const rect = svgElement("rect", { x: 1, y: 1, width: 24, height: 16, rx: 3, fill, class: hatch === null ? "empty" : null });
  return element("li", {}, box(rect), words);
}

function box(rect, width = 26) {
  return svgElement("svg", { viewBox: `0 0 ${width} 18`, "aria-hidden": "true" }, rect);
}
