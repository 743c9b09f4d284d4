// Axes of the chart. The time axis has the city's clock and days, cut from the slots' text.

import { svgElement } from "./dom.js";
import { dayOf } from "./texts.js";

export const [WIDTH, HEIGHT, LEFT, TOP] = [340, 178, 30, 8];
export const FLOOR = HEIGHT - 34; // below it are the labels of hours and days
const HOUR_MS = 3_600_000;
const STEPS = [1, 2, 3, 6, 12, 24]; // hours between two labels
const SPACE = 38; // the least between two labels
const DAY_SPACE = 34; // the least for a day's name

// The ends of the value axis, round numbers. A speed's axis begins at 0.
export function extent(low, high, unit) {
  if (unit === "km/h") return [0, Math.max(10, Math.ceil(high / 10) * 10)];
  const span = high - low || Math.abs(high) || 1;
  const step = 10 ** Math.floor(Math.log10(span));
  const parts = [0.1, 0.2, 0.5].map((part) => part * step).filter((part) => part * 20 >= span);
  const part = parts[0] ?? step;
  return [Math.floor(low / part) * part, Math.ceil(high / part) * part].map(plain);
}

const plain = (number) => Number(number.toPrecision(6));

export function* valueAxis(bottom, top, y, unit) {
  for (const value of [bottom, plain((bottom + top) / 2), top]) {
    yield svgElement("line", { class: "rule", x1: LEFT, x2: WIDTH, y1: y(value), y2: y(value) });
    yield svgElement("text", { class: "tick", x: LEFT - 5, y: y(value) + 3.5, "text-anchor": "end" }, `${value}`);
  }
  yield svgElement("text", { class: "tick", x: LEFT + 3, y: TOP + 8 }, unit);
}

export function* timeAxis(slots, begin, end, x) {
  const hour = x(begin + HOUR_MS) - x(begin);
  const step = STEPS.find((each) => each * hour >= SPACE) ?? 24;
  const days = daysOf(slots);
  for (const [i, day] of days.entries()) {
    const next = i + 1 < days.length ? Math.min(end, days[i + 1].midnight) : end;
    const from = Math.max(begin, day.midnight);
    if (day.midnight > begin) yield svgElement("line", { class: "midnight", x1: x(day.midnight), x2: x(day.midnight), y1: TOP, y2: HEIGHT - 4 });
    for (let clock = 0; clock < 24; clock += step) {
      const at = day.midnight + clock * HOUR_MS;
      if (at < from || at > next || (at > end - HOUR_MS / 2)) continue;
      yield svgElement("text", { class: "tick", x: x(at), y: HEIGHT - 20, "text-anchor": "middle" }, `${String(clock).padStart(2, "0")}:00`);
    }
    if (x(next) - x(from) < DAY_SPACE) continue;
    yield svgElement("text", { class: "tick", x: (x(from) + x(next)) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, dayOf(day.date).slice(0, -5));
  }
}

// The local days of the slots. Midnight is reckoned from a day's first slot: on a day when the clock changes, later
// labels may be an hour off.
function daysOf(slots) {
  const days = new Map();
  for (const { start } of slots) {
    const date = start.slice(0, 10);
    if (days.has(date)) continue;
    const [hours, minutes] = start.slice(11, 16).split(":").map(Number);
    days.set(date, { date, midnight: Date.parse(start) - hours * HOUR_MS - minutes * 60_000 });
  }
  return [...days.values()];
}
