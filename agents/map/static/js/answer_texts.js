// Texts for answers to queries over days, and for the periods that the server lists.

import { STATES, dateOf } from "./texts.js";

const REASONS = { too_few_user_days: "too few buses", missing_days: "a day is missing", not_requested: "no limit was requested" };

export const datesOf = ({ first_date: first, last_date: last }) => (first === last ? dateOf(first) : `${dateOf(first)} to ${dateOf(last)}`);

export function meaningOf({ kind, speed_limit: limit, threshold, value }) {
  if (kind === "mean_value") return `The mean, over all these days and buses, of a bus's mean ${value} in this hour of a day.`;
  if (kind === "over_threshold" && threshold === undefined) return `How many buses a day had a greater ${value} than a limit. None was requested for these days.`;
  if (kind === "over_threshold") return `How many buses a day had a ${value} above ${threshold} at some time in this hour.`;
  if (kind === "mean_speed") return "The mean, over all these days and buses, of a bus's mean speed in this hour of a day.";
  if (kind === "over_speed_limit" && limit === undefined) return "How many buses a day drove faster than a limit. None was requested for these days.";
  if (kind === "over_speed_limit") return `How many buses a day drove faster than ${limit} km/h at some time in this hour.`;
  return "";
}

export function nameOf({ kind, speed_limit: limit, threshold, value }) {
  if (kind === "mean_value") return `mean ${value} of buses`;
  if (kind === "over_threshold") return threshold === undefined ? `buses a day with a ${value} above a limit` : `buses a day with a ${value} above ${threshold}`;
  if (kind === "mean_speed") return "mean speed of buses";
  if (kind === "over_speed_limit" && limit === undefined) return "buses a day faster than a limit";
  return kind === "over_speed_limit" ? `buses a day faster than ${limit} km/h` : kind;
}

// The value in its unit, or why there is none; with the number of days, if some were left out.
export function answerOf(answer) {
  if (answer.mean === undefined) return REASONS[answer.reason] ?? STATES[answer.status] ?? answer.status;
  const days = Number(answer.days_used) < Number(answer.days) ? ` (${answer.days_used} of ${answer.days} days)` : "";
  return `${answer.mean} ${answer.unit === "vehicles/day" ? "a day" : answer.unit}${days}`;
}

export const noiseOf = (answer) => (answer.interval95 === undefined ? "" : answer.interval95.join(" to "));
