// Texts for times and states. Times are cut from the record's text: they are in the city's time zone, not the browser's.

import { LANGUAGE } from "./words.js";

// Names of three letters each: callers cut them off.
const NAMES = {
  en: ["Sun Mon Tue Wed Thu Fri Sat", "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"],
  de: ["Son Mon Die Mit Don Fre Sam", "Jan Feb Mär Apr Mai Jun Jul Aug Sep Okt Nov Dez"],
};
export const [DAYS, MONTHS] = NAMES[LANGUAGE].map((names) => names.split(" "));

export const STATES = {
  released: "released",
  suppressed: "suppressed",
  budget_exhausted: "budget spent",
  incomplete: "incomplete",
  deferred: "no query of its own",
};

export const GROUPS = {
  central: "buses that trust the operator",
  local: "buses with devices of their own",
};

export const STAGES = {
  live: "at the close of the hour",
  predicted: "predicted",
  settled: "settled",
};

export const STAGE_SENTENCES = {
  live: "Estimated at the close of the hour.",
  predicted: "Predicted: no release of this hexagon in this hour.",
  settled: "Settled at the end of the day.",
};

export const WHY = {
  suppressed: "Too few vehicles were here, so their mean is not published.",
  budget_exhausted: "The day's privacy budget is spent, so nothing more was computed.",
  deferred: "The budget went to other queries, which tell more. The estimate covers this hour, and so does the end of the day.",
  incomplete: "Some of the day's records were lost, so nothing was computed.",
};

export function dayOf(text) {
  const [year, month, day] = text.slice(0, 10).split("-").map(Number);
  return `${DAYS[new Date(Date.UTC(year, month - 1, day)).getUTCDay()]} ${day} ${MONTHS[month - 1]} ${year}`;
}

// 2022-01-02 -> 2 Jan 2022
export const dateOf = (text) => dayOf(text).slice(4);

export const clockOf = (text) => text.slice(11, 16);

export const hoursOf = (slot) => `${clockOf(slot.start)}–${clockOf(slot.end)}`;

export const shortOf = (slot) => `${dayOf(slot.start).slice(0, -5)} ${clockOf(slot.start)}`;

export function zoneOf(text) {
  const offset = text.slice(19).replace(/^\.\d+/, "");
  return offset === "Z" || offset === "+00:00" ? "UTC" : `UTC${offset}`;
}

export function countsOf(releases) {
  const counts = {};
  for (const release of releases) counts[release.status] = (counts[release.status] ?? 0) + 1;
  const means = counts.released ?? 0;
  const rest = Object.keys(counts).filter((status) => status !== "released");
  return [`${means} ${means === 1 ? "mean" : "means"}`, ...rest.map((each) => `${counts[each]} ${STATES[each] ?? each}`)].join(", ");
}

export function countsOfRunning(records) {
  const means = records.filter((each) => each.mean !== undefined).length;
  return `${means} running ${means === 1 ? "mean" : "means"}`;
}

export function countsOfEstimates(estimates) {
  const predicted = estimates.filter((each) => each.stage === "predicted").length;
  return `${estimates.length} ${estimates.length === 1 ? "estimate" : "estimates"}, ${predicted} of them predicted`;
}
