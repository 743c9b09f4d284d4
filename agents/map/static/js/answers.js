// Answers to queries over days: a table of all hexagons for one query, period and hour.

import { element } from "./dom.js";
import { parseExact } from "./exact.js";
import { answerOf, datesOf, meaningOf, noiseOf } from "./answer_texts.js";
import { say } from "./words.js";

export class Answers {
  #model;
  #card;
  #node;
  #period = null; // key of the period that the reader chose; null: the first
  #slot = null; // the hour that the reader chose; null: the one on display
  #requested = "";
  #answers = [];
  #drawnKey = "";

  constructor(model, card, node) {
    this.#model = model;
    this.#card = card;
    this.#node = node;
  }

  draw() {
    const { queries, policy, selected, slot } = this.#model;
    this.#card.hidden = queries.length === 0;
    if (queries.length === 0) return;
    const period = queries.find((each) => keyOf(each) === this.#period) ?? queries[0];
    const slots = Object.keys(period.slots);
    const wanted = this.#slot ?? slot?.slice(11);
    const hour = slots.includes(wanted) ? wanted : slots[0];
    const request = new URLSearchParams({ policy, query: period.query, period: period.first_date, slot: hour });
    const version = `${request} ${period.slots[hour]}`;
    if (version !== this.#requested) this.#load(version, request);
    const key = `${version} ${queries.map(keyOf)} ${slots} ${selected} ${this.#answers.length}`;
    if (key === this.#drawnKey) return;
    this.#drawnKey = key;
    this.#node.replaceChildren(...this.#view(period, hour));
  }

  async #load(version, request) {
    this.#requested = version;
    this.#answers = [];
    try {
      const answer = await fetch(`api/v1/queries?${request}`);
      if (!answer.ok || this.#requested !== version) return;
      this.#answers = parseExact(await answer.text()).queries;
      this.#model.changed();
    } catch {
      this.#requested = ""; // retried with the next change
    }
  }

  #view(period, hour) {
    const { queries } = this.#model;
    const choices = queries.map((each) => [keyOf(each), `${each.query}: ${datesOf(each)}`]);
    const chosePeriod = (value) => (this.#period = value);
    const choseHour = (value) => (this.#slot = value);
    const released = this.#answers.filter((each) => each.mean !== undefined).length;
    const count = this.#answers.length === 0 ? say`Loading.` : say`${released} of ${this.#answers.length} hexagons have a value. Its noise is within the interval in 95 of 100 cases.`;
    return [
      this.#choice("answers-period", say`Query and dates`, choices, keyOf(period), chosePeriod),
      this.#choice("answers-slot", say`Hour`, Object.keys(period.slots).map((each) => [each, each]), hour, choseHour),
      element("p", { id: "answers-meaning" }, meaningOf(period)),
      element("p", { class: "hint", id: "answers-count" }, count),
      element("div", { class: "answers", tabindex: 0, role: "region", "aria-label": say`Table of answers` }, this.#table()),
    ];
  }

  #choice(id, label, choices, value, choose) {
    const chosen = (event) => {
      choose(event.target.value);
      this.#model.changed();
      requestAnimationFrame(() => requestAnimationFrame(() => document.getElementById(id)?.focus())); // it is made anew
    };
    const options = choices.map(([name, words]) => element("option", { value: name, selected: name === value }, words));
    return element("p", { class: "choice" }, element("label", { for: id }, label), element("select", { id, onchange: chosen }, ...options));
  }

  #table() {
    const { selected } = this.#model;
    const rows = this.#answers.map((answer) => {
      const pressed = String(answer.cell === selected);
      const choose = element("button", { type: "button", "aria-pressed": pressed, onclick: () => this.#model.select(answer.cell) }, answer.cell);
      return element("tr", { class: answer.cell === selected ? "chosen" : null }, element("th", { scope: "row" }, choose), element("td", {}, answerOf(answer)), element("td", {}, noiseOf(answer)));
    });
    const names = [say`hexagon`, say`answer`, say`noise, 95 %`].map((each) => element("th", { scope: "col" }, each));
    return element("table", { class: "hours" }, element("thead", {}, element("tr", {}, ...names)), element("tbody", {}, ...rows));
  }
}

const keyOf = (period) => `${period.query} ${period.first_date}`;
