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
  const { epsilon_user_day: spent, limit, day_bound: bound, epsilon_delta: finer, releases } = record;
  const share = (part) => `${Math.min(100, (100 * Number(part)) / Number(limit))}%`;
  const filled = element("span", { class: "spent" });
  filled.style.width = share(spent);
  const mark = element("span", { class: "bound" });
  mark.style.left = share(bound);
  const meter = element(
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
  return [
    element("p", { class: "figure" }, element("strong", {}, spent), ` of ${limit} epsilon`),
    meter,
    element("dl", {}, ...[
      ["day", record.date],
      ["means and answers", releases],
      ["the whole day at most", bound],
      ["as (epsilon, delta)", `${finer.epsilon}, ${finer.delta}`],
    ].flatMap(([word, value]) => [element("dt", {}, word), element("dd", {}, value)])),
  ];
}
