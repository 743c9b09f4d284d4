// Texts for answers to queries over days, and for the periods that the server lists.

import { STATES, dateOf } from "./texts.js";
import { rangeOf } from "./values.js";
import { say } from "./words.js";

const REASONS = { too_few_user_days: say`too few buses`, missing_days: say`a day is missing`, not_requested: say`no limit was requested` };

export const datesOf = ({ first_date: first, last_date: last }) => (first === last ? dateOf(first) : rangeOf([dateOf(first), dateOf(last)]));

export function meaningOf({ kind, speed_limit: limit, threshold, value }) {
  if (kind === "mean_value") return say`The mean, over all these days and buses, of a bus's mean ${value} in this hour of a day.`;
  if (kind === "over_threshold" && threshold === undefined) return say`How many buses a day had a greater ${value} than a limit. None was requested for these days.`;
  if (kind === "over_threshold") return say`How many buses a day had a ${value} above ${threshold} at some time in this hour.`;
  if (kind === "mean_speed") return say`The mean, over all these days and buses, of a bus's mean speed in this hour of a day.`;
  if (kind === "over_speed_limit" && limit === undefined) return say`How many buses a day drove faster than a limit. None was requested for these days.`;
  if (kind === "over_speed_limit") return say`How many buses a day drove faster than ${limit} km/h at some time in this hour.`;
  return "";
}

export function nameOf({ kind, speed_limit: limit, threshold, value }) {
  if (kind === "mean_value") return say`mean ${value} of buses`;
  if (kind === "over_threshold") return threshold === undefined ? say`buses a day with a ${value} above a limit` : say`buses a day with a ${value} above ${threshold}`;
  if (kind === "mean_speed") return say`mean speed of buses`;
  if (kind === "over_speed_limit" && limit === undefined) return say`buses a day faster than a limit`;
  return kind === "over_speed_limit" ? say`buses a day faster than ${limit} km/h` : kind;
}

// The value in its unit, or why there is none; with the number of days, if some were left out.
export function answerOf(answer) {
  if (answer.mean === undefined) return REASONS[answer.reason] ?? STATES[answer.status] ?? answer.status;
  const value = answer.unit === "vehicles/day" ? say`${answer.mean} a day` : `${answer.mean} ${answer.unit}`;
  return Number(answer.days_used) < Number(answer.days) ? say`${value} (${answer.days_used} of ${answer.days} days)` : value;
}

export const noiseOf = (answer) => (answer.interval95 === undefined ? "" : rangeOf(answer.interval95));
