// Spent share of the day's privacy budget. All of it is public: it follows from the releases.

import { element } from "./dom.js";

export class Budget {
  #model;
  #node;
  #drawnRecord;

  constructor(model, node) {
    this.#model = model;
    this.#node = node;
  }

  draw() {
    const record = this.#model.budget;
    if (record === this.#drawnRecord) return;
    this.#drawnRecord = record;
    if (record === undefined) {
      this.#node.replaceChildren(element("p", { class: "hint" }, "No budget record of this day yet."));
      return;
    }
    this.#node.replaceChildren(...view(record));
  }
}

function view(record) {
  const { epsilon_user_day: booked, limit, day_bound: bound, epsilon_delta: finer, releases, spent } = record;
  const tracker = (record.queries ?? []).find((each) => each.query === "tracker");
  if (tracker === undefined) {
    return [
      figure(booked, ` of ${limit} epsilon`),
      meter(booked, bound, limit),
      rows([
        ["day", record.date],
        ["means and answers", releases],
        ["the whole day at most", bound],
        ["as (epsilon, delta)", `${finer.epsilon}, ${finer.delta}`],
      ]),
    ];
  }
  if (Number(tracker.places) === 0) {
    return [
      element("p", { class: "hint" }, "Other policies had spent too much of this day, so no queries are made of it."),
      rows([["day", record.date], ["spent by them", `${booked} of ${limit}`]]),
    ];
  }
  // What is reserved for a tracker is booked before its first query. A bus loses what its own queries have cost.
  if (spent === undefined) {
    return [
      element("p", { class: "hint" }, `A bus can lose at most ${bound} epsilon on this day.`),
      rows([["day", record.date]]),
    ];
  }
  return [
    figure(spent.largest, ` of ${limit} epsilon`),
    meter(spent.largest, bound, limit),
    rows([
      ["day", record.date],
      ["lost by a bus so far, at most", spent.largest],
      ["lost by a bus so far, mean", spent.mean],
      ["the whole day at most", bound],
    ]),
  ];
}

function figure(value, rest) {
  return element("p", { class: "figure" }, element("strong", {}, value), rest);
}

function meter(spent, bound, limit) {
  const share = (part) => `${Math.min(100, (100 * Number(part)) / Number(limit))}%`;
  const filled = element("span", { class: "spent" });
  filled.style.width = share(spent);
  const mark = element("span", { class: "bound" });
  mark.style.left = share(bound);
  return element(
    "div",
    {
      class: "meter",
      role: "meter",
      "aria-label": "Epsilon spent of the day's limit",
      "aria-valuemin": 0,
      "aria-valuemax": limit,
      "aria-valuenow": spent,
      "aria-valuetext": `${spent} of ${limit}`,
    },
    filled,
    mark,
  );
}

function rows(pairs) {
  return element("dl", {}, ...pairs.flatMap(([word, value]) => [element("dt", {}, word), element("dd", {}, value)]));
}
