// Texts for times and states. Times are cut from the record's text: they are in the city's time zone, not the browser's.

const DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

export const STATES = {
  released: "released",
  suppressed: "suppressed",
  budget_exhausted: "budget spent",
  incomplete: "incomplete",
  deferred: "not asked yet",
};

export const WHY = {
  suppressed: "Too few vehicles were here, so their mean speed is not published.",
  budget_exhausted: "The day's privacy budget is spent, so nothing more was computed.",
  deferred: "The day's end or other hours of this place say more than a mean of this hour would.",
  incomplete: "Some of the day's records were lost, so nothing was computed.",
};

export function dayOf(text) {
  const [year, month, day] = text.slice(0, 10).split("-").map(Number);
  return `${DAYS[new Date(Date.UTC(year, month - 1, day)).getUTCDay()]} ${day} ${MONTHS[month - 1]} ${year}`;
}

export const clockOf = (text) => text.slice(11, 16);

export const hoursOf = (slot) => `${clockOf(slot.start)}–${clockOf(slot.end)}`;

export const shortOf = (slot) => `${dayOf(slot.start).slice(0, -5)} ${clockOf(slot.start)}`;

export function zoneOf(text) {
  const offset = text.slice(19).replace(/^\.\d+/, "");
  return offset === "Z" || offset === "+00:00" ? "UTC" : `UTC${offset}`;
}

export const stateOf = (release) => STATES[release.status] ?? release.status;

export function noiseOf(release) {
  const [low, high] = release.interval95;
  return `${low} to ${high} ${release.unit ?? ""}`.trim();
}

export function countsOf(releases) {
  const counts = {};
  for (const release of releases) counts[release.status] = (counts[release.status] ?? 0) + 1;
  const means = counts.released ?? 0;
  const rest = Object.keys(counts).filter((status) => status !== "released");
  return [`${means} ${means === 1 ? "mean" : "means"}`, ...rest.map((each) => `${counts[each]} ${STATES[each] ?? each}`)].join(", ");
}
