// A comparison with another hour: the difference of two values, and whether it is clear, given both intervals.

import { byId, element } from "./dom.js";
import { intervalOf, rounded, valueOf } from "./values.js";
import { say } from "./words.js";

const HOUR_MS = 3_600_000;
const CHOICES = [
  [0, say`with nothing`, ""],
  [1, say`with the hour before`, say`the hour before`],
  [24, say`with the day before`, say`the day before`],
  [168, say`with a week before`, say`a week before`],
];
export const MOST = 0.5; // of the colours' span: the difference at either end of the scale

// The slot so many hours before another, by the city's clock, or null.
export function slotBefore(slots, slot, hours) {
  if (slot === null || hours === 0) return null;
  const local = new Date(Date.parse(`${slot}:00Z`) - hours * HOUR_MS).toISOString().slice(0, 16);
  return slots.some((each) => each.slot === local) ? local : null;
}

// { difference, isClear } of two records, or null if one has no value with an interval.
export function differenceOf(record, other) {
  if (![record, other].every((each) => each !== undefined && valueOf(each) !== null && intervalOf(each) !== null)) return null;
  const [half, otherHalf] = [record, other].map((each) => (Number(intervalOf(each)[1]) - Number(intervalOf(each)[0])) / 2);
  const difference = Number(valueOf(record)) - Number(valueOf(other));
  return { difference, half: Math.hypot(half, otherHalf), isClear: Math.abs(difference) > Math.hypot(half, otherHalf) };
}

export function differenceWords(model, cell) {
  const found = differenceOf(model.record(cell), model.otherRecords().get(cell));
  if (model.other === null || found === null) return [];
  const when = CHOICES.find(([hours]) => hours === model.compared)[2];
  const size = rounded(Math.abs(found.difference), [-found.half, found.half]);
  return [element("p", { id: "cell-difference" }, sentence(found, `${size} ${model.unit}`, when))];
}

function sentence({ difference, isClear }, size, when) {
  if (!isClear) return say`No clear difference from ${when}.`;
  return difference > 0 ? say`About ${size} faster than ${when}.` : say`About ${size} slower than ${when}.`;
}

export class Compare {
  #model;
  #row = byId("compare-row");
  #select = byId("compare");

  constructor(model) {
    this.#model = model;
    this.#select.addEventListener("change", () => model.compare(Number(this.#select.value)));
  }

  draw() {
    const { slots, slot, kind, compared } = this.#model;
    const choices = CHOICES.filter(([hours]) => hours === 0 || slotBefore(slots, slot, hours) !== null);
    this.#row.hidden = kind === "running" || kind === "continual" || choices.length < 2;
    const text = JSON.stringify(choices);
    if (this.#select.dataset.choices !== text) {
      this.#select.dataset.choices = text;
      this.#select.replaceChildren(...choices.map(([hours, words]) => element("option", { value: hours }, words)));
    }
    this.#select.value = String(choices.some(([hours]) => hours === compared) ? compared : 0);
  }
}
