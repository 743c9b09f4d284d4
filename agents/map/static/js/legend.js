// Legend of the colours and hatchings.

import { certainties } from "./certainty.js";
import { chooseColours, colourOf, differenceColour, slowIsRed } from "./colour.js";
import { MOST } from "./compare.js";
import { element, setText, svgElement } from "./dom.js";
import { windowPhrase } from "./spans.js";
import { isJourney } from "./values.js";
import { say } from "./words.js";

const WIDTH = 320;
const STATES = [
  ["suppressed", say`suppressed: too few vehicles`],
  ["exhausted", say`the day's privacy budget is spent`],
  ["incomplete", say`incomplete: records were lost`],
  ["deferred", say`no query of its own: see its estimate`],
  [null, say`nothing published for this hour`],
];
const FEW_VALUES = ["suppressed", say`suppressed: too few values`]; // of a running sum, in which a vehicle has several
const UNKNOWN = ["unknown", say`hatched: only the city's average is known`];
const EMPTY = say`The colours and what they mean come with the first hour.`;
const NO_MEAN = [null, say`no mean in these hours`]; // of a running mean
const FAINTER = [(unit) => say`Fainter: more noise (95 % are within ± ${unit}).`, (unit) => say`Fainter: less certain (95 % are within ± ${unit}).`]; // the interval of a release covers the noise alone
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

  // The choice of the scale, which is also that of the strip.
  #colours() {
    const choose = (event) => {
      chooseColours(event.target.checked);
      this.#model.changed();
      requestAnimationFrame(() => requestAnimationFrame(() => document.getElementById("slow-is-red")?.focus())); // it is made anew
    };
    return element("p", { class: "colours" }, element("label", {}, element("input", { type: "checkbox", id: "slow-is-red", checked: slowIsRed(), onchange: choose }), " ", element("span", {}, say`Slow is red`)));
  }

  draw() {
    const { range, unit, value, kind, window, layer, slots, byCluster } = this.#model;
    const name = kind === "running" ? window.name : "";
    this.#strip.hidden = slots.length === 0 || byCluster;
    const { other } = this.#model;
    const journey = isJourney([...this.#model.records().values()][0]);
    const key = `${range} ${unit} ${value} ${kind} ${name} ${layer.hasDeferred} ${layer.hasAlarms} ${slots.length > 0} ${slowIsRed()} ${other} ${journey}`;
    if (key === this.#drawnKey) return;
    this.#drawnKey = key;
    const ofModel = kind === "estimates" || (kind === "running" && window.of === "estimates");
    const title = other === null ? `${titleOf(kind, window, value, journey)}, ${unit}` : say`Faster or slower, ${unit}`;
    setText(this.#title, title);
    if (slots.length === 0) {
      this.#node.replaceChildren(element("p", { class: "hint" }, EMPTY)); // the range is not known yet
      return;
    }
    if (other !== null) {
      this.#strip.replaceChildren(element("p", {}, title), differences(range, unit));
      this.#node.replaceChildren(differences(range, unit), element("ul", { class: "states" }, swatch(["unknown", say`hatched: no clear difference`])));
      return;
    }
    this.#strip.replaceChildren(element("p", {}, title), scale(range, unit), kind === "estimates" ? element("ul", { class: "states" }, swatch(UNKNOWN)) : "");
    this.#node.replaceChildren(scale(range, unit), this.#colours(), ...samples(range, unit, FAINTER[Number(ofModel)]), element("ul", { class: "states" }, ...statesOf(kind, layer)));
  }
}

function titleOf(kind, window, value, journey) {
  const mean = value !== null ? say`Mean ${value}` : journey ? say`Mean journey speed` : say`Mean speed while moving`;
  if (kind === "running") return `${mean}: ${windowPhrase(window)}`;
  return kind === "continual" ? say`${mean} since the horizon's start` : mean;
}

function differences([low, high], unit) {
  const most = Number((MOST * (high - low)).toPrecision(2));
  return bar((share) => differenceColour((2 * share - 1) * most, most), [say`${most} slower`, "0", say`${most} faster, ${unit}`], say`Colours from red, ${most} ${unit} slower or more, to blue, ${most} ${unit} faster or more`);
}

function statesOf(kind, layer) {
  if (kind === "estimates") return [...stages(), ...(layer.hasAlarms ? [ALARM()] : [])];
  if (kind === "running") return [swatch(NO_MEAN)];
  const states = kind === "continual" ? [FEW_VALUES, ...STATES.slice(1)] : STATES;
  return states.filter(([hatch]) => hatch !== "deferred" || layer.hasDeferred).map(swatch);
}

// The same colour in each opacity, and its meaning in one line.
function samples([low, high], unit, fainter) {
  const fill = colourOf(low + SAMPLE * (high - low), [low, high]);
  const shown = certainties(unit, [low, high]).map(([most, opacity]) => {
    const words = most === Infinity ? say`wider` : `±${most}`;
    return element("li", {}, box(svgElement("rect", { class: "certainty", x: 1, y: 1, width: 58, height: 16, rx: 3, fill, "fill-opacity": opacity }), 60), words);
  });
  return [
    element("p", { class: "legend-text", id: "certainty-text" }, fainter(unit)),
    element("ul", { class: "certainties", "aria-labelledby": "certainty-text" }, ...shown),
  ];
}

const ALARM = () => element("li", {}, element("span", { class: "alarm-mark", "aria-hidden": "true" }, "!"), say`alarm: far slower than expected`);

function stages() {
  const edges = [
    ["released", say`solid edge: with releases of this hour`],
    ["predicted", say`dashed edge: predicted from other hours and places`],
  ].map(([name, words]) => element("li", {}, box(svgElement("rect", { x: 1, y: 1, width: 24, height: 16, rx: 3, class: name })), words));
  return [...edges, swatch(UNKNOWN)];
}

function scale(range, unit) {
  const [low, high] = range;
  const middle = Number(((low + high) / 2).toPrecision(6));
  const [from, to] = [`${low} ${unit}`, `${high} ${unit}`];
  const label = slowIsRed() ? say`Colours from red, ${from} or less, to blue, ${to} or more` : say`Colours from dark violet, ${from} or less, over green to yellow, ${to} or more`;
  return bar((share) => colourOf(low + share * (high - low), range), [say`${low} or less`, `${middle}`, say`${high} or more`], label);
}

function bar(colourAt, ticks, label) {
  const parts = 64;
  const bars = Array.from({ length: parts }, (_, i) => svgElement("rect", { x: (i * WIDTH) / parts, width: WIDTH / parts + 0.5, height: 14, fill: colourAt((i + 0.5) / parts) }));
  const colours = svgElement("svg", { viewBox: `0 0 ${WIDTH} 14`, preserveAspectRatio: "none", class: "scale", "aria-hidden": "true" }, ...bars);
  return element("div", { role: "img", "aria-label": label }, colours, element("div", { class: "ticks" }, ...ticks.map((each) => element("span", {}, each))));
}

function swatch([hatch, words]) {
  const fill = hatch === null ? "none" : `url(#hatch-${hatch})`;
  const rect = svgElement("rect", { x: 1, y: 1, width: 24, height: 16, rx: 3, fill, class: hatch === null ? "empty" : null });
  return element("li", {}, box(rect), words);
}

function box(rect, width = 26) {
  return svgElement("svg", { viewBox: `0 0 ${width} 18`, "aria-hidden": "true" }, rect);
}
