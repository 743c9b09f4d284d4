// A picture of the map as it is shown, for a report: title, hour, legend, scale, unit, and what the numbers are.

import { byId } from "./dom.js";
import { paint } from "./paint.js";
import { asOfWords, spanTitle } from "./spans.js";
import { zoneOf } from "./texts.js";
import { say } from "./words.js";

const MARGIN = 18; // px
const WIDTH_MIN = 360;
const NOTES_MIN = 260; // beside the legend; where there is less room they are below it
const RATIO_MIN = 2; // pixels of the picture per pixel of the page
const SIDE_MAX = 8_192; // pixels: more than some browsers can draw
const KINDS = {
  estimates: say`Estimates, made of private releases alone`,
  running: say`Running means, made of private releases alone`,
  continual: say`Private means of all hours since the horizon's start: each has random noise, which hides any single vehicle`,
  releases: say`Private releases: each mean has random noise, which hides any single vehicle`,
};

// Return a canvas. The map must be on the page.
export function picture(model) {
  const map = byId("map").getBoundingClientRect();
  const legend = legendOf(model);
  const width = Math.max(WIDTH_MIN, Math.ceil(map.width));
  const legendWidth = Math.ceil(legend.getBoundingClientRect().width);
  const isWide = width >= legendWidth + NOTES_MIN;
  const layout = { width, map, legend, isWide, left: isWide ? legendWidth + 3 * MARGIN : MARGIN };
  const measured = document.createElement("canvas").getContext("2d");
  const height = draw(measured, model, layout); // once for its height
  const canvas = document.createElement("canvas");
  const ratio = Math.min(Math.max(RATIO_MIN, devicePixelRatio), SIDE_MAX / Math.max(width, height));
  [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.fillStyle = colour("--card");
  context.fillRect(0, 0, width, height);
  draw(context, model, layout);
  return canvas;
}

// The card of the colours; of the clusters while the map shows them.
const legendOf = (model) => (model.byCluster ? document.querySelector("#clusters-body table") : byId("legend"));

function draw(context, model, { width, map, legend, isWide, left }) {
  const { shown, policy, kind } = model;
  const isSpan = kind === "running" || kind === "continual";
  const ink = { width: width - 2 * MARGIN, colour: colour("--ink") };
  let y = MARGIN;
  y = write(context, document.title, MARGIN, y, { ...ink, size: 14, weight: 400 });
  y = write(context, isSpan ? `${spanTitle(model)}, ${asOfWords(model)}` : `${spanTitle(model)} (${zoneOf(shown.end)})`, MARGIN, y, { ...ink, size: 20, weight: 650 });
  y = write(context, say`${KINDS[kind]}. Policy ${policy}.`, MARGIN, y, { ...ink, size: 13, weight: 400, colour: colour("--soft") });
  y = Math.round(y + MARGIN / 2); // sharp lines: whole pixels
  context.save();
  context.translate(Math.floor((width - map.width) / 2), y);
  paint(context, byId("map"), map);
  context.restore();
  y += map.height + MARGIN;
  const below = write(context, model.byCluster ? say`Clusters` : byId("legend-title").textContent, MARGIN, y, { ...ink, size: 15, weight: 650 }) + 6;
  const box = legend.getBoundingClientRect();
  context.save();
  context.translate(MARGIN, below);
  paint(context, legend, box);
  context.restore();
  const legendEnd = below + box.height + MARGIN;
  const end = notes().reduce((at, each) => write(context, each, left, at, { ...ink, width: width - MARGIN - left, size: 13, weight: 400, colour: colour("--soft") }) + 6, isWide ? y : legendEnd);
  return Math.max(legendEnd, end + MARGIN / 2);
}

function notes() {
  const attribution = [...document.querySelectorAll("#map .leaflet-control-attribution")].map((node) => node.innerText.trim());
  const budget = document.getElementById("budget-words")?.textContent ?? "";
  return [
    budget === "" ? "" : say`Privacy budget of the day, in epsilon: ${budget}`,
    attribution.filter((each) => each !== "").join("; "),
    say`Made with hatcast. Hexagons: H3.`,
  ].filter((each) => each !== "");
}

// Write a wrapped text with its top left corner at (x, y), and return where it ends.
function write(context, text, x, y, { width, size, weight, colour: ink }) {
  context.font = `${weight} ${size}px ${getComputedStyle(document.body).fontFamily}`;
  context.fillStyle = ink;
  context.textBaseline = "top";
  let line = "";
  const lines = [];
  for (const word of text.split(" ")) {
    const longer = line === "" ? word : `${line} ${word}`;
    if (line !== "" && context.measureText(longer).width > width) {
      lines.push(line);
      line = word;
    } else line = longer;
  }
  lines.push(line);
  lines.forEach((each, i) => context.fillText(each, x, y + i * size * 1.4));
  return y + lines.length * size * 1.4;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
