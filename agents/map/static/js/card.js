// What is known of a cell in one hour, in words.

import { element } from "./dom.js";
import { ofContinual, ofRunning } from "./running_card.js";
import { GROUPS, STAGE_SENTENCES, WHY } from "./texts.js";
import { intervalOf, isContinual, isEstimate, isRunning, spanOf, stateOf, valueOf } from "./values.js";

const REMAINDER = "Only buses outside of the smaller hexagons count here: those inside are counted there.";
const SURPRISE = 3; // standard deviations
const MEANING = "is in this interval. It covers the noise of the releases, which buses happened to pass, and what the model leaves open.";

// range: of the colours
export function summary(record, range) {
  if (record === undefined) return [element("p", { class: "figure" }, "Nothing was published for this hour.")];
  return [...figureOf(record, range), ...remainderOf(record)];
}

function figureOf(record, range) {
  if (isRunning(record)) return ofRunning(record, range);
  if (isContinual(record)) return ofContinual(record, range);
  return isEstimate(record) ? ofEstimate(record) : ofRelease(record);
}

function remainderOf({ remainder }) {
  return remainder === undefined ? [] : [element("p", { class: "hint", id: "cell-remainder" }, REMAINDER)];
}

function ofRelease(release) {
  if (valueOf(release) === null) {
    return [element("p", { class: "figure" }, element("strong", {}, stateOf(release))), element("p", {}, WHY[release.status] ?? "")];
  }
  return [
    element("p", { class: "figure" }, element("strong", { id: "cell-mean" }, release.mean), ` ${release.unit ?? ""}`),
    element("p", {}, "Noise, 95 %: ", element("span", { class: "numbers", id: "cell-interval" }, intervalOf(release) === null ? "unknown" : spanOf(release))),
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

function ofEstimate(estimate) {
  const { road, unit, value, stage } = estimate;
  return [
    element("p", { class: "figure" }, element("strong", { id: "cell-road" }, road.value), ` ${unit}, ${value === undefined ? "speed of the road" : `estimated ${value}`}`),
    element("p", {}, "95 %: ", element("span", { class: "numbers", id: "cell-interval" }, spanOf(estimate))),
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
    element("p", { class: "hint", id: "cell-meaning" }, `In 95 of 100 cases the mean ${record.value === undefined ? "speed of the road" : `${record.value} here`} ${MEANING}`),
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
