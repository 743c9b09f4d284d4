// Texts for times and states. Times are cut from the record's text: they are in the city's time zone, not the browser's.

import { LANGUAGE, say } from "./words.js";

// Names of three letters each: callers cut them off.
const NAMES = {
  en: ["Sun Mon Tue Wed Thu Fri Sat", "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"],
  de: ["Son Mon Die Mit Don Fre Sam", "Jan Feb Mär Apr Mai Jun Jul Aug Sep Okt Nov Dez"],
};
export const [DAYS, MONTHS] = NAMES[LANGUAGE].map((names) => names.split(" "));

export const STATES = {
  released: say`released`,
  suppressed: say`suppressed`,
  budget_exhausted: say`budget spent`,
  incomplete: say`incomplete`,
  deferred: say`no query of its own`,
};

export const GROUPS = {
  central: say`buses that trust the operator`,
  local: say`buses with devices of their own`,
};

export const STAGES = {
  live: say`at the close of the hour`,
  predicted: say`predicted`,
  settled: say`settled`,
};

export const STAGE_SENTENCES = {
  live: say`Estimated at the close of the hour.`,
  predicted: say`Predicted: no release of this hexagon in this hour.`,
  settled: say`Settled at the end of the day.`,
};

export const WHY = {
  suppressed: say`Too few vehicles were here, so their mean is not published.`,
  budget_exhausted: say`The day's privacy budget is spent, so nothing more was computed.`,
  deferred: say`The budget went to other queries, which tell more. The estimate covers this hour, and so does the end of the day.`,
  incomplete: say`Some of the day's records were lost, so nothing was computed.`,
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
  return [means === 1 ? say`1 mean` : say`${means} means`, ...rest.map((each) => `${counts[each]} ${STATES[each] ?? each}`)].join(", ");
}

export function countsOfRunning(records) {
  const means = records.filter((each) => each.mean !== undefined).length;
  return means === 1 ? say`1 running mean` : say`${means} running means`;
}

export function countsOfEstimates(estimates) {
  const predicted = estimates.filter((each) => each.stage === "predicted").length;
  const number = estimates.length;
  return number === 1 ? say`1 estimate, ${predicted} of them predicted` : say`${number} estimates, ${predicted} of them predicted`;
}
