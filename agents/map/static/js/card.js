// What is known of a cell in one hour, in words.

import { certainties, certaintyWords } from "./certainty.js";
import { element } from "./dom.js";
import { ofContinual, ofRunning } from "./running_card.js";
import { GROUPS, STAGE_SENTENCES, WHY } from "./texts.js";
import { intervalOf, isContinual, isEstimate, isJourney, isRunning, rounded, spanOf, stateOf, valueOf } from "./values.js";

const REMAINDER = "Only buses outside of the smaller hexagons count here: those inside are counted there.";
const SURPRISE = 3; // standard deviations
const MEANING = "is in this interval. It covers the noise of the releases, which buses happened to pass, and what the model leaves open.";
const MEAN_MEANING = "The interval of the mean is made for the mean of all readings of the hour; that of the road holds it less often.";

// range: of the colours
export function summary(record, range) {
  if (record === undefined) return [element("p", { class: "figure" }, "Nothing was published for this hour.")];
  return [...figureOf(record, range), ...remainderOf(record)];
}

function figureOf(record, range) {
  if (isRunning(record)) return ofRunning(record, range);
  if (isContinual(record)) return ofContinual(record, range);
  return isEstimate(record) ? ofEstimate(record, range) : ofRelease(record, range);
}

function remainderOf({ remainder }) {
  return remainder === undefined ? [] : [element("p", { class: "hint", id: "cell-remainder" }, REMAINDER)];
}

// A value and how certain it is in words, without digits that its interval does not carry; then the published digits.
function inWords(value, interval, record, range, meaning, exact) {
  const { unit = "" } = record;
  const head = element("p", { class: "figure", id: "cell-about" }, element("strong", {}, `about ${rounded(value, interval)} ${unit}`));
  const [low, high] = interval === null ? [] : interval.map((each) => rounded(each, interval));
  return [
    head,
    interval === null ? null : element("p", { id: "cell-sure" }, `Very likely between ${low} and ${high} ${unit}.`),
    interval === null ? null : element("p", { class: "hint" }, certaintyWords(interval, certainties(unit, range))),
    element("p", { class: "hint", id: "cell-what" }, meaning),
    ...paceOf(value, interval, record),
    element("details", { class: "exact" }, element("summary", {}, "The published digits"), ...exact),
  ].filter((each) => each !== null);
}

// 60 / speed, with the ends of its interval.
function paceOf(value, interval, { unit, value: name }) {
  if (unit !== "km/h" || name !== undefined || interval === null || Number(interval[0]) < 3) return [];
  const [pace, fast, slow] = [value, interval[1], interval[0]].map((each) => (60 / Number(each)).toFixed(1));
  return [element("p", { class: "hint", id: "cell-pace" }, `Pace: ${pace} min/km (${fast} to ${slow}).`)];
}

const meanWords = (record) => (record.value !== undefined ? `Mean ${record.value} of all readings of this hour.` : isJourney(record) ? "Mean journey speed, of all readings of this hour." : "Mean speed while moving, of all readings of this hour.");

const roadWords = (record) => (record.value !== undefined ? `Estimated ${record.value}: no number of this hexagon in this hour.` : isJourney(record) ? "Journey speed of the road: no number of this hexagon in this hour." : "Speed of the road while moving: no number of this hexagon in this hour.");

function ofRelease(release, range) {
  if (valueOf(release) === null) {
    return [element("p", { class: "figure" }, element("strong", {}, stateOf(release))), element("p", {}, WHY[release.status] ?? "")];
  }
  const exact = [
    element("p", {}, element("span", { class: "numbers", id: "cell-mean" }, release.mean), ` ${release.unit ?? ""}`),
    element("p", {}, "Noise, 95 %: ", element("span", { class: "numbers", id: "cell-interval" }, intervalOf(release) === null ? "unknown" : spanOf(release))),
  ];
  return [
    ...inWords(release.mean, intervalOf(release), release, range, meanWords(release), exact),
    ...groupsOf(release),
    ...blendOf(release),
    ...otherValues(release),
  ];
}

// Each group's own mean, of a hybrid policy that publishes it.
function groupsOf({ groups, unit }) {
  if (groups === undefined) return [];
  const lines = Object.entries(groups).flatMap(([name, group]) => [
    element("dt", {}, GROUPS[name] ?? name),
    element("dd", {}, `${group.mean} ${unit} (${group.interval95.join(" to ")}), ${group.users} ${Number(group.users) === 1 ? "bus" : "buses"}`),
  ]);
  return [element("dl", { id: "cell-groups" }, ...lines)];
}

// What the operator and the devices of a hybrid policy contribute: users, weight, and the epsilon of the noise that hides each.
function blendOf(release) {
  const { users, weight, epsilon, device_epsilon: own } = release;
  if (users === undefined || weight === undefined) return [];
  const parts = [
    ["central", Number(weight), `${epsilon}, noise of the operator`],
    ["local", 1 - Number(weight), `${own}, noise of each device`],
  ];
  const lines = parts.flatMap(([name, part, hidden]) => [element("dt", {}, GROUPS[name]), element("dd", { class: "numbers" }, `${users[name]}, weight ${part.toFixed(3)}, epsilon ${hidden}`)]);
  return [element("dl", { id: "cell-blend" }, ...lines)];
}

// Of a policy with several values: all but the speed, which is the figure above
function otherValues({ values = [] }) {
  const others = values.filter(({ name }) => name !== "speed");
  if (others.length === 0) return [];
  const lines = others.flatMap(({ name, mean, unit, interval95 }) => [element("dt", {}, name), element("dd", { class: "numbers" }, `${mean} ${unit} (${interval95.join(" to ")})`)]);
  return [element("dl", { id: "cell-values" }, ...lines)];
}

// The mean of the hour's readings is what can be checked, so it comes first; where nothing was released, the road.
function ofEstimate(estimate, range) {
  const { road, mean, unit, value, stage } = estimate;
  const exact = [
    element("p", {}, element("span", { class: "numbers", id: "cell-road" }, road.value), ` ${unit}, ${value === undefined ? "speed of the road" : `estimated ${value}`}`),
    element("p", {}, "95 %: ", element("span", { class: "numbers", id: "cell-interval" }, spanOf(estimate))),
    mean === undefined ? null : element("p", {}, element("span", { class: "numbers", id: "cell-mean" }, mean.value), ` ${unit}, mean of all readings, 95 %: ${mean.interval95.join(" to ")}`),
  ];
  const shown = mean ?? road;
  return [
    ...inWords(shown.value, shown.interval95, estimate, range, mean === undefined ? roadWords(estimate) : meanWords(estimate), exact),
    element("p", { id: "cell-stage" }, STAGE_SENTENCES[stage] ?? stage),
    surprise(estimate),
  ].filter((part) => part !== null);
}

// What the interval of an estimate means, and the numbers beside it; release: of the same hour
export function explanation(record, release) {
  if (!isEstimate(record)) return [];
  const details = [];
  if (record.mean !== undefined) details.push(["mean of its readings", `${record.mean.value} (${record.mean.interval95.join(" to ")})`]);
  if (release !== undefined) details.push(["release of this hour", ofItsRelease(release)]);
  return [
    element("p", { class: "hint", id: "cell-meaning" }, `In 95 of 100 cases the mean ${record.value === undefined ? "speed of the road" : `${record.value} here`} ${MEANING} ${record.mean === undefined ? "" : MEAN_MEANING}`.trim()),
    element("dl", { id: "cell-details" }, ...details.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)])),
    ...(release === undefined ? [] : blendOf(release)),
  ];
}

function ofItsRelease(release) {
  if (valueOf(release) === null) return stateOf(release);
  return intervalOf(release) === null ? release.mean : `${release.mean} (${intervalOf(release).join(" to ")})`;
}

function surprise({ residual_z: z }) {
  if (z === undefined || Math.abs(Number(z)) <= SURPRISE) return null;
  const [size, direction] = [z.replace("-", ""), Number(z) < 0 ? "slower" : "faster"];
  const words = `Unusual: the last release about this hour is ${size} standard deviations ${direction} than expected.`;
  return element("p", { class: "surprise", id: "cell-surprise" }, words);
}
