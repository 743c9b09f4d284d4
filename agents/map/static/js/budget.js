// Spent share of the day's privacy budget, in words and digits. All of it is public: it follows from the releases.

import { horizonOf, partsOf, sentencesOf, trackerOf } from "./budget_words.js";
import { element } from "./dom.js";
import { say } from "./words.js";

const WHEN = { horizon: say`in the whole horizon`, day: say`on this day`, total: say`on all its days` };

// What a record's epsilons promise. Under `replace` where and when a bus was is public.
function meaningOf(record, { hidesPresence, hasOtherValues }) {
  const unit = horizonOf(record) !== undefined ? "horizon" : record.total === undefined ? "day" : "total";
  const hidden = hidesPresence ? say`whatever a bus did` : hasOtherValues ? say`whatever values a bus reported` : say`however fast a bus went`;
  const booked = unit === "horizon" ? ` ${say`The cost is booked in advance, on each date of the horizon, and never again.`}` : "";
  return say`These are epsilons: ${hidden} ${WHEN[unit]}, no result that is published gets more than e^epsilon times as likely by it.` + booked;
}

export class Budget {
  #model;
  #node;
  #drawnKey = [];

  constructor(model, node) {
    this.#model = model;
    this.#node = node;
  }

  draw() {
    const { budget: record, layers, kind } = this.#model;
    const traits = kind === "continual" ? layers.continual : layers.releases;
    const { hasDevices, hasDelta, hidesPresence, hasOtherValues } = traits;
    const key = [record, hasDevices, hasDelta, hidesPresence, hasOtherValues];
    if (key.every((each, i) => each === this.#drawnKey[i])) return;
    this.#drawnKey = key;
    if (record === undefined) {
      this.#node.replaceChildren(element("p", { class: "hint" }, say`No budget record of this day yet.`));
      return;
    }
    this.#node.replaceChildren(...view(record, traits));
  }
}

function view(record, traits) {
  const { epsilon_user_day: booked, limit, day_bound: bound } = record;
  const [tracker, horizon] = [trackerOf(record), horizonOf(record)];
  if (tracker !== undefined && Number(tracker.places) === 0) {
    return [
      element("p", { class: "words" }, say`Other policies had spent too much of this day, so no queries are made of it.`),
      rows([[say`day`, record.date], [say`spent by them`, say`${booked} of ${limit}`]]),
    ];
  }
  if (horizon !== undefined && Number(horizon.places) === 0) {
    return [
      element("p", { class: "words" }, say`Other policies had spent too much of this day, so it has no running means.`),
      rows([[say`day`, record.date], [say`spent by them`, say`${booked} of ${limit}`]]),
    ];
  }
  const [lead, ...more] = sentencesOf(record, traits).map((each) => element("p", { class: "words" }, each));
  lead.id = "budget-words";
  const parts = partsOf(record);
  return [
    lead,
    ...meters(record, parts),
    ...more,
    rows([[say`day`, record.date], ...(tracker === undefined ? (horizon === undefined ? ofHats(record) : []) : ofTracker(record)), [say`the whole day at most`, bound], [say`limit of a day`, limit], ...ofTotal(record)]),
    element("p", { class: "hint" }, meaningOf(record, traits)),
  ];
}

// What protects a bus: the limit of its day, or of all its days.
function meters(record, { lost }) {
  if (record.total !== undefined) return [meter(say`Epsilon spent of the limit of all days`, record.total, record.total_limit)];
  return lost === null ? [] : [meter(say`Epsilon spent and set aside, of what a bus's day may lose`, lost, record.day_bound)];
}

function ofHats({ releases, epsilon_user_day: booked, epsilon_delta: finer }) {
  return [
    [say`means and answers`, releases],
    [say`spent and set aside`, booked],
    [say`as (epsilon, delta)`, `${finer.epsilon}, ${finer.delta}`],
  ];
}

function ofTracker({ spent }) {
  if (spent === undefined) return [];
  return [
    [say`lost by a bus so far, at most`, spent.largest],
    [say`lost by a bus so far, mean`, spent.mean],
  ];
}

const ofTotal = ({ total, total_limit: limit }) => (total === undefined ? [] : [[say`all days so far`, total], [say`limit of all days`, limit]]);

function meter(label, spent, bound) {
  const most = Math.max(Number(bound), Number(spent));
  const share = (part) => `${most === 0 ? 0 : Math.min(100, (100 * Number(part)) / most)}%`;
  const filled = element("span", { class: "spent" });
  filled.style.width = share(spent);
  return element(
    "div",
    { class: "meter", role: "meter", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": most, "aria-valuenow": spent, "aria-valuetext": say`${spent} of ${bound}` },
    filled,
  );
}

function rows(pairs) {
  return element("dl", {}, ...pairs.flatMap(([word, value]) => [element("dt", {}, word), element("dd", {}, value)]));
}
