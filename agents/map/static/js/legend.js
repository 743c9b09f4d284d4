// Legend of the colours and hatchings.

import { colourOf } from "./colour.js";
import { element, setText, svgElement } from "./dom.js";

const WIDTH = 320;
const STATES = [
  ["suppressed", "suppressed: too few vehicles"],
  ["exhausted", "the day's privacy budget is spent"],
  ["incomplete", "incomplete: records were lost"],
  [null, "nothing published for this hour"],
];

export class Legend {
  #model;
  #node;
  #title;
  #drawnKey = "";

  constructor(model, node, title) {
    this.#model = model;
    this.#node = node;
    this.#title = title;
  }

  draw() {
    const { range, unit } = this.#model;
    const key = `${range} ${unit}`;
    if (key === this.#drawnKey) return;
    this.#drawnKey = key;
    setText(this.#title, `Mean speed, ${unit}`);
    this.#node.replaceChildren(scale(range, unit), element("ul", { class: "states" }, ...STATES.map(swatch)));
  }
}

function scale(range, unit) {
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
  const middle = (low + high) / 2;
  const ticks = [`${low} or less`, `${middle}`, `${high} or more`].map((each) => element("span", {}, each));
  return element(
    "div",
    { role: "img", "aria-label": `Colours from dark violet, ${low} ${unit} or less, over green to yellow, ${high} ${unit} or more` },
    bar,
    element("div", { class: "ticks" }, ...ticks),
  );
}

function swatch([hatch, words]) {
  const fill = hatch === null ? "none" : `url(#hatch-${hatch})`;
  const box = svgElement("svg", { viewBox: "0 0 26 18", class: hatch === null ? "empty" : "", "aria-hidden": "true" }, svgElement("rect", { x: 1, y: 1, width: 24, height: 16, rx: 3, fill }));
  return element("li", {}, box, words);
}
