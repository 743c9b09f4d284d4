// What is known of a cell in one hour, in words.

import { alarmOf } from "./alarms.js";
import { certainties, certaintyWords } from "./certainty.js";
import { element } from "./dom.js";
import { ofContinual, ofRunning } from "./running_card.js";
import { GROUPS, STAGE_SENTENCES, WHY } from "./texts.js";
import { intervalOf, isContinual, isEstimate, isJourney, isRunning, rangeOf, rounded, spanOf, stateOf, valueOf } from "./values.js";
import { say } from "./words.js";

const REMAINDER = say`Only buses outside of the smaller hexagons count here: those inside are counted there.`;
const SURPRISE = 3; // standard deviations
const MEANING = say`The interval of the mean is made to hold the mean of all readings of the hour in 95 of 100 cases: it covers the noise, and what the model leaves open. That of the road holds this mean less often, since few buses differ from their road by chance.`;
const ALARM_MEANING = say`It follows from the published numbers alone. About one alarm a month is false, and most incidents of a single hexagon have none.`;
const ROAD_MEANING = say`No number of this hour is about this hexagon. What is shown is the road, as other hours and places let it be expected, without the chance of which buses come.`;

// range: of the colours
export function summary(record, range) {
  if (record === undefined) return [element("p", { class: "figure" }, say`Nothing was published for this hour.`)];
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
  const head = element("p", { class: "figure", id: "cell-about" }, element("strong", {}, say`about ${rounded(value, interval)} ${unit}`));
  const [low, high] = interval === null ? [] : interval.map((each) => rounded(each, interval));
  return [
    head,
    interval === null ? null : element("p", { id: "cell-sure" }, say`Very likely between ${low} and ${high} ${unit}.`),
    interval === null ? null : element("p", { class: "hint" }, certaintyWords(interval, certainties(unit, range))),
    element("p", { class: "hint", id: "cell-what" }, meaning),
    ...paceOf(value, interval, record),
    element("details", { class: "exact" }, element("summary", {}, say`The published digits`), ...exact),
  ].filter((each) => each !== null);
}

// 60 / speed, with the ends of its interval.
function paceOf(value, interval, { unit, value: name }) {
  if (unit !== "km/h" || name !== undefined || interval === null || Number(interval[0]) < 3) return [];
  const [pace, fast, slow] = [value, interval[1], interval[0]].map((each) => (60 / Number(each)).toFixed(1));
  return [element("p", { class: "hint", id: "cell-pace" }, say`Pace: ${pace} min/km (${fast} to ${slow}).`)];
}

function meanWords(record) {
  if (record.value !== undefined) return say`Mean ${record.value} of all readings of this hour.`;
  return isJourney(record) ? say`Mean journey speed, of all readings of this hour.` : say`Mean speed while moving, of all readings of this hour.`;
}

function roadWords(record) {
  if (record.value !== undefined) return say`Estimated ${record.value}: no number of this hexagon in this hour.`;
  return isJourney(record) ? say`Journey speed of the road: no number of this hexagon in this hour.` : say`Speed of the road while moving: no number of this hexagon in this hour.`;
}

function ofRelease(release, range) {
  if (valueOf(release) === null) {
    return [element("p", { class: "figure" }, element("strong", {}, stateOf(release))), element("p", {}, WHY[release.status] ?? "")];
  }
  const exact = [
    element("p", {}, element("span", { class: "numbers", id: "cell-mean" }, release.mean), ` ${release.unit ?? ""}`),
    element("p", {}, say`Noise, 95 %:`, " ", element("span", { class: "numbers", id: "cell-interval" }, intervalOf(release) === null ? say`unknown` : spanOf(release))),
  ];
  return [
    ...inWords(release.mean, intervalOf(release), release, range, meanWords(release), exact),
    ...groupsOf(release),
    ...blendOf(release),
    ...otherValues(release),
  ];
}

const busesOf = (users) => (Number(users) === 1 ? say`1 bus` : say`${users} buses`);

// Each group's own mean, of a hybrid policy that publishes it.
function groupsOf({ groups, unit }) {
  if (groups === undefined) return [];
  const lines = Object.entries(groups).flatMap(([name, group]) => [
    element("dt", {}, GROUPS[name] ?? name),
    element("dd", {}, `${group.mean} ${unit} (${rangeOf(group.interval95)}), ${busesOf(group.users)}`),
  ]);
  return [element("dl", { id: "cell-groups" }, ...lines)];
}

// What the operator and the devices of a hybrid policy contribute: users, weight, and the epsilon of the noise that hides each.
function blendOf(release) {
  const { users, weight, epsilon, device_epsilon: own } = release;
  if (users === undefined || weight === undefined) return [];
  const parts = [
    ["central", Number(weight), say`${epsilon}, noise of the operator`],
    ["local", 1 - Number(weight), say`${own}, noise of each device`],
  ];
  const lines = parts.flatMap(([name, part, hidden]) => [element("dt", {}, GROUPS[name]), element("dd", { class: "numbers" }, say`${users[name]}, weight ${part.toFixed(3)}, epsilon ${hidden}`)]);
  return [element("dl", { id: "cell-blend" }, ...lines)];
}

// Of a policy with several values: all but the speed, which is the figure above
function otherValues({ values = [] }) {
  const others = values.filter(({ name }) => name !== "speed");
  if (others.length === 0) return [];
  const lines = others.flatMap(({ name, mean, unit, interval95 }) => [element("dt", {}, name), element("dd", { class: "numbers" }, `${mean} ${unit} (${rangeOf(interval95)})`)]);
  return [element("dl", { id: "cell-values" }, ...lines)];
}

// The mean of the hour's readings is what can be checked, so it comes first; where nothing was released, the road.
function ofEstimate(estimate, range) {
  const { road, mean, stage, value } = estimate;
  const exact = [
    mean === undefined ? null : figure(mean, estimate, "mean", say`mean of all readings`),
    figure(road, estimate, "road", value === undefined ? say`the road, without the chance of which buses came` : say`estimated ${value}, without the chance of which buses came`),
  ];
  return [
    ...inWords(valueOf(estimate), intervalOf(estimate), estimate, range, mean === undefined ? roadWords(estimate) : meanWords(estimate), exact),
    element("p", { id: "cell-stage" }, STAGE_SENTENCES[stage] ?? stage),
    alarm(estimate),
    surprise(estimate),
  ].filter((part) => part !== null);
}

// One of an estimate's two figures, with its published digits.
function figure({ value, interval95 }, { unit }, name, words) {
  return element("p", {}, element("span", { class: "numbers", id: `cell-${name}` }, value), ` ${unit} (`, element("span", { class: "numbers", id: `cell-${name}-interval` }, rangeOf(interval95)), `), ${words}`);
}

// What the intervals of an estimate mean, and the numbers beside it; release: of the same hour
export function explanation(record, release) {
  if (!isEstimate(record)) return [];
  return [
    element("p", { class: "hint", id: "cell-meaning" }, record.mean === undefined ? ROAD_MEANING : MEANING),
    release === undefined ? null : element("dl", { id: "cell-details" }, element("dt", {}, say`release of this hour`), element("dd", {}, ofItsRelease(release))),
    ...(release === undefined ? [] : blendOf(release)),
  ];
}

function ofItsRelease(release) {
  if (valueOf(release) === null) return stateOf(release);
  return intervalOf(release) === null ? release.mean : `${release.mean} (${rangeOf(intervalOf(release))})`;
}

function alarm(estimate) {
  const words = alarmOf(estimate);
  if (words === null) return null;
  return element("div", { class: "surprise", id: "cell-alarm" }, element("p", {}, words), element("p", { class: "hint" }, ALARM_MEANING));
}

function surprise({ residual_z: z }) {
  if (z === undefined || Math.abs(Number(z)) <= SURPRISE) return null;
  const size = z.replace("-", "");
  const words = Number(z) < 0
    ? say`Unusual: the last release about this hour is ${size} standard deviations slower than expected.`
    : say`Unusual: the last release about this hour is ${size} standard deviations faster than expected.`;
  return element("p", { class: "surprise", id: "cell-surprise" }, words);
}
