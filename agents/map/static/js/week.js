// A hexagon's usual week: the mean of the stored hours by day of the week and hour of the day, as coloured squares.

import { colourOf } from "./colour.js";
import { element, svgElement } from "./dom.js";
import { DAYS } from "./texts.js";
import { valueOf } from "./values.js";
import { say } from "./words.js";

const [SIDE, LEFT, TOP] = [13, 34, 14];
const MONDAY_FIRST = [1, 2, 3, 4, 5, 6, 0];

// records: from slot to record
export function usualWeek(records, range, unit) {
  const sums = new Map(); // "day hour" -> [sum, number]
  for (const [slot, record] of records) {
    if (valueOf(record) === null) continue;
    const key = `${new Date(`${slot}:00Z`).getUTCDay()} ${Number(slot.slice(11, 13))}`;
    const [sum, number] = sums.get(key) ?? [0, 0];
    sums.set(key, [sum + Number(valueOf(record)), number + 1]);
  }
  if (sums.size < 2) return [];
  const hours = [...sums.keys()].map((key) => Number(key.split(" ")[1]));
  const [first, last] = [Math.min(...hours), Math.max(...hours)];
  const parts = [];
  for (let hour = first; hour <= last; hour += 3) parts.push(svgElement("text", { class: "tick", x: LEFT + (hour - first) * SIDE, y: TOP - 4 }, String(hour)));
  MONDAY_FIRST.forEach((day, row) => {
    parts.push(svgElement("text", { class: "tick", x: 0, y: TOP + row * SIDE + 10 }, DAYS[day]));
    for (let hour = first; hour <= last; hour += 1) {
      const found = sums.get(`${day} ${hour}`);
      const fill = found === undefined ? "none" : colourOf(found[0] / found[1], range);
      const title = found === undefined ? [] : [svgElement("title", {}, `${DAYS[day]} ${hour}:00, ${(found[0] / found[1]).toFixed(0)} ${unit}`)];
      parts.push(svgElement("rect", { x: LEFT + (hour - first) * SIDE, y: TOP + row * SIDE, width: SIDE - 1, height: SIDE - 1, fill, class: found === undefined ? "none" : "known" }, ...title));
    }
  });
  const size = `0 0 ${LEFT + (last - first + 1) * SIDE} ${TOP + 7 * SIDE}`;
  const values = [...sums.values()].map(([sum, number]) => sum / number);
  const label = say`Means by day of the week and hour, of the stored hours: from ${Math.min(...values).toFixed(0)} to ${Math.max(...values).toFixed(0)} ${unit}`;
  return [element("details", { class: "week" }, element("summary", {}, say`Its usual week`), svgElement("svg", { viewBox: size, class: "week-grid", role: "img", "aria-label": label }, ...parts))];
}
