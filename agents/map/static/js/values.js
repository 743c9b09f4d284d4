// What the page shows of a record: a release, an estimate, or a running mean.

import { STAGES, STATES } from "./texts.js";
import { say } from "./words.js";

export const isEstimate = (record) => record?.estimate_id !== undefined;

// A record of hats.running: the mean of a window of hours.
export const isRunning = (record) => record?.running_id !== undefined;

// A release of a continual policy: its mean is that of all hours since the horizon's start, with noise of its own.
export const isContinual = (record) => record?.running !== undefined;

export const slotOf = (record) => `${record.date}T${record.slot}`;

export const policyOf = (record) => (record.estimate_id ?? record.running_id ?? record.release_id).split("/")[0];

// The part of a record with its value and interval, or undefined: the mean, which can be checked; of an hour without one the
// road.
const figureOf = (record) => (isEstimate(record) ? (record.mean ?? record.road) : isRunning(record) ? record.mean : undefined);

// The value as published, or null.
export const valueOf = (record) => (isEstimate(record) || isRunning(record) ? figureOf(record)?.value : record?.mean) ?? null;

export const intervalOf = (record) => (isEstimate(record) || isRunning(record) ? figureOf(record)?.interval95 : record?.interval95) ?? null;

// Whether the interval covers all that is uncertain, or the noise alone.
export const isOfModel = (record) => isEstimate(record) || (isRunning(record) && record.of === "estimates");

export const statusOf = (record) => record.status ?? record.stage;

export function stateOf(record) {
  if (isRunning(record) && valueOf(record) === null) return say`no mean in these hours`;
  return record.status === undefined ? (STAGES[record.stage] ?? record.stage) : (STATES[record.status] ?? record.status);
}

// A speed by its record: with standing, or while moving.
export const isJourney = (record) => record?.speed === "journey";

// Digits that an interval leaves to a value: none if it is two units wide or more.
const digitsOf = ([low, high]) => Math.min(6, Math.max(0, Math.ceil(-Math.log10(Math.max(1e-6, (high - low) / 2)))));

export function rounded(value, interval) {
  return interval === null ? value : Number(value).toFixed(digitsOf(interval.map(Number)));
}

// An estimate whose road is known no better than the whole city. classes: see certainty.js
export function isGuess(record, classes) {
  if (!isEstimate(record) || record.stage !== "predicted") return false;
  const [low, high] = record.road.interval95.map(Number);
  return (high - low) / 2 > classes.at(-2)[0];
}

export const rangeOf = ([low, high]) => say`${low} to ${high}`;

export function spanOf(record) {
  const [low, high] = intervalOf(record);
  return `${rangeOf([low, high])} ${record.unit ?? ""}`.trim();
}
