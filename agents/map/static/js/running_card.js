// Running means of a hexagon, in words: the one on display, and all of them.

import { certainties } from "./certainty.js";
import { element } from "./dom.js";
import { horizonWords, inOrder, windowHours, windowPhrase, windowWords } from "./spans.js";
import { WHY, dayOf } from "./texts.js";
import { intervalOf, rangeOf, spanOf, stateOf, valueOf } from "./values.js";
import { say } from "./words.js";

const FEW_VALUES = say`Too few values since the horizon's start, so their mean is not published.`;

const WEIGHTS = {
  readings: say`each counts by its readings`,
  users: say`each counts by its buses`,
  slots: say`all count alike`,
};
const MEANINGS = {
  estimates: say`In 95 of 100 cases the mean of all readings of these hours is in this interval, by the model behind the estimates.`,
  releases: say`The interval covers the noise of the releases in 95 of 100 cases. It does not cover clipping, or readings beyond the limit of a bus and day.`,
};

// The figure of a running mean, and the hours that it is of. range: of the colours
export function ofRunning(running, range) {
  const head = valueOf(running) === null
    ? element("p", { class: "figure" }, element("strong", {}, stateOf(running)))
    : element("p", { class: "figure" }, element("strong", { id: "cell-mean" }, running.mean.value), ` ${running.unit}, ${windowPhrase(running)}`);
  return [
    head,
    valueOf(running) === null ? null : element("p", {}, "95 %: ", element("span", { class: "numbers", id: "cell-interval" }, spanOf(running))),
    wideness(running, range),
    element("p", { id: "cell-hours" }, `${windowHours(running)}: ${hoursOf(running)}.`),
    valueOf(running) === null ? null : element("p", { class: "hint", id: "cell-meaning" }, MEANINGS[running.of] ?? ""),
  ].filter((part) => part !== null);
}

// A release of a continual policy: a mean since the horizon's start, which the whole horizon's guarantee covers.
export function ofContinual(release, range) {
  const { running, unit, value } = release;
  const what = value === undefined ? say`mean speed of all hours since the horizon's start, not of one hour` : say`mean ${value} of all hours since the horizon's start, not of one hour`;
  const figure = valueOf(release) === null
    ? [element("p", { class: "figure" }, element("strong", {}, stateOf(release))), element("p", {}, release.status === "suppressed" ? FEW_VALUES : (WHY[release.status] ?? ""))]
    : [element("p", { class: "figure" }, element("strong", { id: "cell-mean" }, release.mean), ` ${unit}, ${what}`), element("p", {}, say`Noise, 95 %:`, " ", element("span", { class: "numbers", id: "cell-interval" }, spanOf(release)))];
  const total = Number((Number(release.epsilon) * Number(running.max_cells)).toPrecision(6));
  const rows = [
    [say`values in it`, running.count],
    [say`their sum`, running.sum === undefined ? undefined : `${running.sum.value} (${rangeOf(running.sum.interval95)}) ${unit}`],
    [say`mechanism`, running.kind],
    [say`epsilon of this hexagon`, say`${release.epsilon} for the whole horizon`],
    [say`of a bus, at most`, say`${total} in up to ${running.max_cells} hexagons`],
  ].filter(([, text]) => text !== undefined);
  return [
    ...figure,
    wideness(release, range),
    element("p", { id: "cell-horizon" }, say`${horizonWords(running)}; guarantee until ${dayOf(running.last_date)}.`),
    element("dl", { id: "cell-sums" }, ...rows.flatMap(([word, text]) => [element("dt", {}, word), element("dd", {}, text)])),
    element("p", { class: "hint" }, say`A value is the mean of one bus in one hour.`),
  ].filter((part) => part !== null);
}

// A warning if the interval is of the widest class.
function wideness(record, range) {
  const interval = intervalOf(record);
  if (interval === null) return null;
  const [low, high] = interval.map(Number);
  const limit = certainties(record.unit, range).at(-2)[0];
  return (high - low) / 2 <= limit ? null : element("p", { class: "surprise", id: "cell-wide" }, say`A wide interval, more than ±${limit} ${record.unit}: this mean alone tells little.`);
}

function hoursOf({ slots, weights }) {
  const hours = Number(slots) === 1 ? say`1 hour is in it` : say`${slots} hours are in it`;
  return weights === undefined ? hours : `${hours}; ${WEIGHTS[weights] ?? weights}`;
}

// A table of all running means of a hexagon; shown: the one on display, or null.
export function runningTable(records, shown) {
  if (records.length === 0) return [];
  const rows = inOrder(records).map((each) =>
    element("tr", { class: each === shown ? "chosen" : null }, element("th", { scope: "row" }, windowWords(each)), element("td", {}, valueOf(each) ?? "–"), element("td", {}, valueOf(each) === null ? "" : rangeOf(each.mean.interval95)), element("td", {}, each.slots)),
  );
  const head = [say`running mean`, records[0].unit, "95 %", say`hours`].map((each) => element("th", { scope: "col" }, each));
  return [
    element("h3", {}, say`Running means`),
    element("div", { class: "answers", tabindex: 0, role: "region", "aria-label": say`Table of this hexagon's running means` }, element("table", { class: "hours", id: "cell-running" }, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows))),
  ];
}
