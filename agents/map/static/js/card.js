// What is known of a cell in one hour, in words.

import { element } from "./dom.js";
import { STAGE_SENTENCES, WHY } from "./texts.js";
import { intervalOf, isEstimate, spanOf, stateOf, valueOf } from "./values.js";

const SURPRISE = 3; // standard deviations
const MEANING = "In 95 of 100 cases the mean speed of the road is in this interval. It covers the noise of the releases, which buses happened to pass, and what the model leaves open.";

// record: on display; release: of the same hour
export function summary(record, release) {
  if (record === undefined) return [element("p", { class: "figure" }, "Nothing was published for this hour.")];
  return isEstimate(record) ? ofEstimate(record, release) : ofRelease(record);
}

function ofRelease(release) {
  if (valueOf(release) === null) {
    return [element("p", { class: "figure" }, element("strong", {}, stateOf(release))), element("p", {}, WHY[release.status] ?? "")];
  }
  return [
    element("p", { class: "figure" }, element("strong", { id: "cell-mean" }, release.mean), ` ${release.unit ?? ""}`),
    element("p", {}, "Noise, 95 %: ", element("span", { class: "numbers", id: "cell-interval" }, intervalOf(release) === null ? "unknown" : spanOf(release))),
  ];
}

function ofEstimate(estimate, release) {
  const { road, mean, unit, stage } = estimate;
  const details = [];
  if (mean !== undefined) details.push(["mean of its readings", `${mean.value} (${mean.interval95.join(" to ")})`]);
  if (release !== undefined) details.push(["release of this hour", ofItsRelease(release)]);
  return [
    element("p", { class: "figure" }, element("strong", { id: "cell-road" }, road.value), ` ${unit}, speed of the road`),
    element("p", {}, "95 %: ", element("span", { class: "numbers", id: "cell-interval" }, spanOf(estimate))),
    element("p", { id: "cell-stage" }, STAGE_SENTENCES[stage] ?? stage),
    surprise(estimate),
    element("p", { class: "hint", id: "cell-meaning" }, MEANING),
    details.length === 0 ? null : element("dl", {}, ...details.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)])),
  ].filter((part) => part !== null);
}

function ofItsRelease(release) {
  if (valueOf(release) === null) return stateOf(release);
  return intervalOf(release) === null ? release.mean : `${release.mean} (${intervalOf(release).join(" to ")})`;
}

function surprise({ residual_z: z }) {
  if (z === undefined || Math.abs(Number(z)) <= SURPRISE) return null;
  const [size, direction] = [z.replace("-", ""), Number(z) < 0 ? "slower" : "faster"];
  const words = `Unusual: this hour differs from what was expected by ${size} standard deviations, ${direction}.`;
  return element("p", { class: "surprise", id: "cell-surprise" }, words);
}
