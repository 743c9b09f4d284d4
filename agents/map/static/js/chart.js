// Chart of a cell's last days: values and their line, the interval as a band, releases beside estimates as rings.

import { FLOOR, HEIGHT, LEFT, TOP, WIDTH, extent, timeAxis, valueAxis } from "./axes.js";
import { fillOf, HATCH } from "./colour.js";
import { svgElement } from "./dom.js";
import { clockOf, dayOf } from "./texts.js";
import { intervalOf, isEstimate, isRunning, rangeOf, valueOf } from "./values.js";
import { say } from "./words.js";

const LONE = 0.35; // half the width of the band of a lone value, in slots

// records: from slot to the cell's record; beside: its releases, drawn lightly; slots are ordered by time; mean: a running
// mean, drawn as a box over its hours, or null.
export function chart(slots, records, beside, { range, shown, unit, mean = null }) {
  const places = slots.map((slot) => ({ slot, from: Date.parse(slot.start), to: Date.parse(slot.end), record: records.get(slot.slot), beside: beside.get(slot.slot) }));
  const [begin, end] = places.length === 0 ? [0, 1] : [places[0].from, Math.max(...places.map(({ to }) => to))];
  const x = (ms) => LEFT + ((ms - begin) / (end - begin)) * (WIDTH - LEFT);
  const values = places.flatMap((each) => [each.record, each.beside]).filter((each) => each !== undefined && valueOf(each) !== null);
  if (mean?.mean !== undefined) values.push(mean);
  const isWhole = (each) => isEstimate(each) || isRunning(each) || beside.size === 0; // of a ring the interval may be cut off
  const highs = values.map((each) => Number(isWhole(each) ? (intervalOf(each)?.[1] ?? valueOf(each)) : valueOf(each)));
  const lows = values.map((each) => Number(isWhole(each) ? (intervalOf(each)?.[0] ?? valueOf(each)) : valueOf(each)));
  const [bottom, top] = extent(Math.min(range[0], ...lows), Math.max(range[1], ...highs), unit);
  const y = (value) => TOP + (1 - Math.min(1, Math.max(0, (value - bottom) / (top - bottom)))) * (FLOOR - TOP);
  for (const place of places) Object.assign(place, { left: x(place.from), x: x((place.from + place.to) / 2), width: x(place.to) - x(place.from) });
  const parts = [...box(mean, [begin, end], x, y), ...valueAxis(bottom, top, y, unit), ...timeAxis(slots, begin, end, x)];
  const now = places.find(({ slot }) => slot.slot === shown);
  if (now !== undefined) parts.push(svgElement("rect", { class: "now", x: now.left, y: TOP, width: now.width, height: FLOOR - TOP }));
  for (const run of runs(places)) parts.push(svgElement("polygon", { class: "band", points: band(run, y) }));
  for (const place of places) if (place.beside !== undefined && valueOf(place.beside) !== null) parts.push(...ring(place, y));
  for (const run of runs(places)) parts.push(...line(run, y));
  for (const place of places) if (place.record !== undefined) parts.push(...mark(place, place === now, range, y));
  return svgElement("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img", "aria-label": description(places, unit) }, ...parts);
}

// Runs of values of slots that follow each other without a gap.
function runs(places) {
  const found = [];
  for (const place of places) {
    if (place.record === undefined || valueOf(place.record) === null) continue;
    const run = found[found.length - 1];
    const last = run?.[run.length - 1];
    // A new horizon of a continual policy begins anew.
    if (last?.to === place.from && last.record.running?.horizon === place.record.running?.horizon) run.push(place);
    else found.push([place]);
  }
  return found;
}

function band(run, y) {
  const across = run.length > 1 ? run.map((place) => [place.x, place]) : [-LONE, LONE].map((off) => [run[0].x + off * run[0].width, run[0]]);
  const edge = (which) => across.map(([at, { record }]) => `${at},${y(Number(intervalOf(record)?.[which] ?? valueOf(record)))}`);
  return [...edge(0), ...edge(1).reverse()].join(" ");
}

// Solid between values with a release, dashed to and from predicted ones.
function line(run, y) {
  const paths = { line: "", "line predicted": "" };
  run.slice(1).forEach((place, i) => {
    const ends = [run[i], place];
    const name = ends.some(({ record }) => record.stage === "predicted") ? "line predicted" : "line";
    paths[name] += `M${ends.map((each) => `${each.x},${y(Number(valueOf(each.record)))}`).join("L")}`;
  });
  return Object.entries(paths).filter(([, d]) => d !== "").map(([name, d]) => svgElement("path", { class: name, d }));
}

function box(mean, [begin, end], x, y) {
  if (mean === null || valueOf(mean) === null) return [];
  const [from, to] = [mean.start, mean.end].map((each) => x(Math.min(end, Math.max(begin, Date.parse(each)))));
  const [low, value, high] = [intervalOf(mean)[0], valueOf(mean), intervalOf(mean)[1]].map((each) => y(Number(each)));
  return [
    svgElement("rect", { class: "running", x: from, y: high, width: to - from, height: low - high }),
    svgElement("line", { class: "running", x1: from, x2: to, y1: value, y2: value }),
  ];
}

function ring({ x, beside }, y) {
  const [low, high] = intervalOf(beside) ?? [valueOf(beside), valueOf(beside)];
  return [
    svgElement("line", { class: "noise", x1: x, x2: x, y1: y(Number(low)), y2: y(Number(high)) }),
    svgElement("circle", { class: "ring", cx: x, cy: y(Number(valueOf(beside))), r: 2 }),
  ];
}

function mark({ record, x, left, width }, isNow, range, y) {
  const value = valueOf(record);
  if (value === null) {
    const fill = `url(#hatch-${HATCH[record.status] ?? "incomplete"})`;
    return [svgElement("rect", { class: "none", x: left, y: TOP, width, height: FLOOR - TOP, fill })];
  }
  if (isEstimate(record) && !isNow) return [];
  return [svgElement("circle", { class: isEstimate(record) ? "road" : "mean", cx: x, cy: y(Number(value)), r: isEstimate(record) ? 4 : Math.min(3.2, Math.max(1.8, width / 3)), fill: fillOf(record, range) })];
}

function description(places, unit) {
  const found = places.map(({ record }) => record).filter((each) => each !== undefined && valueOf(each) !== null);
  if (found.length === 0) return say`No value in these hours.`;
  const sorted = found.map(valueOf).sort((one, other) => Number(one) - Number(other));
  const [first, last] = [places[0].slot, places[places.length - 1].slot];
  const span = rangeOf([`${dayOf(first.start)} ${clockOf(first.start)}`, `${dayOf(last.end)} ${clockOf(last.end)}`]);
  const ends = [sorted[0], `${sorted[sorted.length - 1]} ${unit}`];
  return isEstimate(found[0])
    ? say`Estimates of ${found.length} hours, ${span}: from ${rangeOf(ends)}. The list below has each value.`
    : say`Means of ${found.length} hours, ${span}: from ${rangeOf(ends)}. The list below has each value.`;
}
