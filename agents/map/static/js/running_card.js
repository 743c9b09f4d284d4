// Running means of a hexagon, in words: the one on display, and all of them.

import { certainties } from "./certainty.js";
import { element } from "./dom.js";
import { horizonWords, inOrder, windowHours, windowPhrase, windowWords } from "./spans.js";
import { WHY, dayOf } from "./texts.js";
import { intervalOf, spanOf, stateOf, valueOf } from "./values.js";

const FEW_VALUES = "Too few values since the horizon's start, so their mean is not published.";

const WEIGHTS = {
  readings: "each counts by its readings",
  users: "each counts by its buses",
  slots: "all count alike",
};
const MEANINGS = {
  estimates: "In 95 of 100 cases the mean of all readings of these hours is in this interval, by the model behind the estimates.",
  releases: "The interval covers the noise of the releases in 95 of 100 cases. It does not cover clipping, or readings beyond the limit of a bus and day.",
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
  const what = `mean ${value ?? "speed"} of all hours since the horizon's start, not of one hour`;
  const figure = valueOf(release) === null
    ? [element("p", { class: "figure" }, element("strong", {}, stateOf(release))), element("p", {}, release.status === "suppressed" ? FEW_VALUES : (WHY[release.status] ?? ""))]
    : [element("p", { class: "figure" }, element("strong", { id: "cell-mean" }, release.mean), ` ${unit}, ${what}`), element("p", {}, "Noise, 95 %: ", element("span", { class: "numbers", id: "cell-interval" }, spanOf(release)))];
  const total = Number((Number(release.epsilon) * Number(running.max_cells)).toPrecision(6));
  const rows = [
    ["values in it", running.count],
    ["their sum", running.sum === undefined ? undefined : `${running.sum.value} (${running.sum.interval95.join(" to ")}) ${unit}`],
    ["mechanism", running.kind],
    ["epsilon of this hexagon", `${release.epsilon} for the whole horizon`],
    ["of a bus, at most", `${total} in up to ${running.max_cells} hexagons`],
  ].filter(([, text]) => text !== undefined);
  return [
    ...figure,
    wideness(release, range),
    element("p", { id: "cell-horizon" }, `${horizonWords(running)}; guarantee until ${dayOf(running.last_date)}.`),
    element("dl", { id: "cell-sums" }, ...rows.flatMap(([word, text]) => [element("dt", {}, word), element("dd", {}, text)])),
    element("p", { class: "hint" }, "A value is the mean of one bus in one hour."),
  ].filter((part) => part !== null);
}

// A warning if the interval is of the widest class.
function wideness(record, range) {
  const interval = intervalOf(record);
  if (interval === null) return null;
  const [low, high] = interval.map(Number);
  const limit = certainties(record.unit, range).at(-2)[0];
  return (high - low) / 2 <= limit ? null : element("p", { class: "surprise", id: "cell-wide" }, `A wide interval, more than ±${limit} ${record.unit}: this mean alone tells little.`);
}

function hoursOf({ slots, weights }) {
  const hours = `${slots} ${Number(slots) === 1 ? "hour is" : "hours are"} in it`;
  return weights === undefined ? hours : `${hours}; ${WEIGHTS[weights] ?? weights}`;
}

// A table of all running means of a hexagon; shown: the one on display, or null.
export function runningTable(records, shown) {
  if (records.length === 0) return [];
  const rows = inOrder(records).map((each) =>
    element("tr", { class: each === shown ? "chosen" : null }, element("th", { scope: "row" }, windowWords(each)), element("td", {}, valueOf(each) ?? "–"), element("td", {}, valueOf(each) === null ? "" : each.mean.interval95.join(" to ")), element("td", {}, each.slots)),
  );
  const head = ["running mean", records[0].unit, "95 %", "hours"].map((each) => element("th", { scope: "col" }, each));
  return [
    element("h3", {}, "Running means"),
    element("div", { class: "answers", tabindex: 0, role: "region", "aria-label": "Table of this hexagon's running means" }, element("table", { class: "hours", id: "cell-running" }, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows))),
  ];
}
