// Answers to queries over days about the selected hexagon: those of the hour on display in words, all as a list.

import { answerOf, datesOf, nameOf, noiseOf } from "./answer_texts.js";
import { element } from "./dom.js";
import { parseExact } from "./exact.js";
import { say } from "./words.js";

export class CellAnswers {
  #model;
  #requested = "";
  #answers = [];
  version = 0; // grows when answers are loaded

  constructor(model) {
    this.#model = model;
  }

  // Load the answers about a cell, again when the server has more.
  request(cell) {
    const { policy, queries } = this.#model;
    const version = `${policy} ${cell} ${JSON.stringify(queries.map(({ slots }) => slots))}`;
    if (version !== this.#requested) this.#load(version, cell, policy, queries.length > 0);
  }

  async #load(version, cell, policy, any) {
    const isSame = this.#requested.split(" ").slice(0, 2).join() === `${policy},${cell}`;
    this.#requested = version;
    if (!isSame) this.#set([]);
    if (!any) return;
    try {
      const answer = await fetch(`api/v1/cells/${cell}/queries?${new URLSearchParams({ policy })}`);
      if (!answer.ok || this.#requested !== version) return;
      this.#set(parseExact(await answer.text()).queries);
      this.#model.changed();
    } catch {
      this.#requested = ""; // retried with the next change
    }
  }

  #set(answers) {
    this.#answers = answers;
    this.version += 1;
  }

  // hour: local start of the slot on display, such as "09:00"
  view(hour) {
    if (this.#answers.length === 0) return [];
    const seen = new Set();
    const newest = this.#answers.filter((each) => each.slot === hour && !seen.has(each.query) && seen.add(each.query));
    return [
      element("h3", {}, say`Queries over days, in this hour`),
      element("div", { id: "cell-answers" }, ...(newest.length === 0 ? [element("p", { class: "hint" }, say`No query was answered for this hour.`)] : newest.map(sentence))),
      list(this.#answers),
    ];
  }
}

function sentence(answer) {
  const noise = noiseOf(answer);
  return element("p", {}, `${datesOf(answer)}, ${nameOf(answer)}: `, element("strong", {}, answerOf(answer)), noise === "" ? "" : `, ${say`noise, 95 %: ${noise}`}`);
}

function list(answers) {
  const rows = answers.map((each) => element("tr", {}, element("th", { scope: "row" }, each.query), element("td", {}, datesOf(each)), element("td", {}, each.slot), element("td", {}, answerOf(each)), element("td", {}, noiseOf(each))));
  const names = [say`query`, say`dates`, say`hour`, say`answer`, say`noise, 95 %`].map((each) => element("th", { scope: "col" }, each));
  const table = element("table", { class: "hours" }, element("thead", {}, element("tr", {}, ...names)), element("tbody", {}, ...rows));
  return element("details", { class: "cell-answers" }, element("summary", {}, say`All its answers over days`), element("div", { class: "answers", tabindex: 0, role: "region", "aria-label": say`Table of this hexagon's answers` }, table));
}
