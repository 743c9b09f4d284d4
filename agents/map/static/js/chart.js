// Chart of a cell's last hours: means as dots and a line, the noise interval as a band.

import { fillOf, HATCH } from "./colour.js";
import { svgElement } from "./dom.js";
import { clockOf, dayOf } from "./texts.js";

const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP] = [340, 150, 30, 20, 8];

// releases: Map from slot to the cell's release; slots are ordered by time.
export function chart(slots, releases, range, shown, unit) {
  const found = slots.map((slot) => releases.get(slot.slot));
  const highs = found.filter((each) => each?.interval95).map((each) => Number(each.interval95[1]));
  const top = Math.max(10, Math.ceil(Math.max(range[1], ...highs) / 10) * 10);
  const step = (WIDTH - LEFT) / Math.max(1, slots.length);
  const x = (i) => LEFT + (i + 0.5) * step;
  const y = (value) => TOP + (1 - Math.min(1, Math.max(0, value / top))) * (HEIGHT - BOTTOM - TOP);
  const parts = [...axes(slots, top, x, y, unit)];
  const at = slots.findIndex((slot) => slot.slot === shown);
  if (at >= 0) parts.push(svgElement("rect", { class: "now", x: x(at) - step / 2, y: TOP, width: step, height: y(0) - TOP }));
  for (const run of runs(found)) parts.push(...band(run, found, x, y, step));
  found.forEach((release, i) => {
    if (release === undefined) return;
    if (release.mean != null) {
      parts.push(svgElement("circle", { class: "mean", cx: x(i), cy: y(Number(release.mean)), r: 3.2, fill: fillOf(release, range) }));
    } else {
      const fill = `url(#hatch-${HATCH[release.status] ?? "incomplete"})`;
      parts.push(svgElement("rect", { class: "none", x: x(i) - step / 2, y: TOP, width: step, height: y(0) - TOP, fill }));
    }
  });
  return svgElement("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img", "aria-label": description(slots, found, unit) }, ...parts);
}

// [first, last] index of each run of consecutive means.
function runs(found) {
  const ranges = [];
  found.forEach((release, i) => {
    if (release?.mean == null) return;
    if (ranges.length > 0 && ranges[ranges.length - 1][1] === i - 1) ranges[ranges.length - 1][1] = i;
    else ranges.push([i, i]);
  });
  return ranges;
}

function band([first, last], found, x, y, step) {
  const indices = Array.from({ length: last - first + 1 }, (_, i) => first + i);
  const edge = (i, which) => y(Number(found[i].interval95?.[which] ?? found[i].mean));
  // A lone mean has a band as wide as its hour.
  const across = first === last ? [[first, -0.3], [first, 0.3]] : indices.map((i) => [i, 0]);
  const points = (which) => across.map(([i, off]) => `${x(i) + off * step},${edge(i, which)}`);
  return [
    svgElement("polygon", { class: "band", points: [...points(0), ...points(1).reverse()].join(" ") }),
    svgElement("polyline", { class: "line", points: indices.map((i) => `${x(i)},${y(Number(found[i].mean))}`).join(" ") }),
  ];
}

function* axes(slots, top, x, y, unit) {
  for (const value of [0, top / 2, top]) {
    yield svgElement("line", { class: "rule", x1: LEFT, x2: WIDTH, y1: y(value), y2: y(value) });
    yield svgElement("text", { class: "tick", x: LEFT - 5, y: y(value) + 3.5, "text-anchor": "end" }, `${value}`);
  }
  yield svgElement("text", { class: "tick", x: LEFT + 3, y: TOP + 8 }, unit);
  const every = Math.max(1, Math.ceil(slots.length / 5));
  for (let i = slots.length - 1; i >= 0; i -= every) {
    yield svgElement("text", { class: "tick", x: x(i), y: HEIGHT - 5, "text-anchor": "middle" }, clockOf(slots[i].start));
  }
}

function description(slots, found, unit) {
  const means = found.filter((each) => each?.mean != null);
  if (means.length === 0) return "No mean in these hours.";
  const sorted = [...means].sort((one, other) => Number(one.mean) - Number(other.mean));
  const span = `${dayOf(slots[0].start)} ${clockOf(slots[0].start)} to ${dayOf(slots[slots.length - 1].end)} ${clockOf(slots[slots.length - 1].end)}`;
  return `Means of ${means.length} hours, ${span}: from ${sorted[0].mean} to ${sorted[sorted.length - 1].mean} ${unit}. The list below has each mean.`;
}
