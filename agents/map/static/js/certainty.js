// Certainty in the picture: the wider a record's 95 % interval, the fainter its hexagon.

import { intervalOf, valueOf } from "./values.js";
import { say } from "./words.js";

const OPACITIES = [0.95, 0.72, 0.5, 0.3];
const STATE_OPACITY = 0.92; // of a hatching
const SPEED_LIMITS = [4, 7, 10]; // km/h, half of an interval's width
const SHARES = [0.2, 0.35, 0.5]; // of the colours' span, for values in another unit

// Return [half of an interval's width up to which a class goes, its opacity]. The last class has no end.
export function certainties(unit, [low, high]) {
  const limits = unit === "km/h" ? SPEED_LIMITS : SHARES.map((share) => Number((share * (high - low)).toPrecision(2)));
  return [...limits, Infinity].map((limit, i) => [limit, OPACITIES[i]]);
}

const SENTENCES = [say`That is a good estimate.`, say`That is a fair estimate.`, say`That is a rough estimate.`, say`That tells little more than the city's average.`];

// How certain a value is, in words.
export function certaintyWords(interval, classes) {
  const [low, high] = interval.map(Number);
  return SENTENCES[classes.findIndex(([most]) => (high - low) / 2 <= most)];
}

// A value without an interval is as faint as the widest one.
export function opacityOf(record, classes) {
  if (record === undefined || valueOf(record) === null) return STATE_OPACITY;
  const interval = intervalOf(record);
  if (interval === null) return OPACITIES[OPACITIES.length - 1];
  const [low, high] = interval.map(Number);
  return classes.find(([most]) => (high - low) / 2 <= most)[1];
}
