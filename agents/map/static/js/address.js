// The page's address: ?policy=, ?hour=, ?cell=, ?show= and ?window= are what the reader chose, so that a link and a reload keep it.

import { byId, element } from "./dom.js";
import { say } from "./words.js";

const WRITE_MS = 400; // between two writes: browsers limit them, and a slider that is dragged makes many
const POLICY = /^[A-Za-z0-9._-]{1,200}$/;
const HOUR = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}$/;
const KINDS = ["estimates", "releases", "running", "continual"];

// Return the valid values of an address, and a sentence for each that is not.
export function readAddress(query) {
  const parameters = new URLSearchParams(query);
  const problems = [];
  const read = (name, isValid, words) => {
    const value = parameters.get(name);
    if (value === null || isValid(value)) return value;
    problems.push(`${name}: ${words}.`);
    return null;
  };
  return {
    policy: read("policy", (text) => POLICY.test(text), say`not a policy's name`),
    hour: read("hour", (text) => HOUR.test(text), say`write the local start of an hour, such as 2022-01-02T09:00`),
    cell: read("cell", (text) => h3.isValidCell(text), say`not an H3 cell, such as 87608b0d2ffffff`),
    show: read("show", (text) => KINDS.includes(text), say`write one of ${KINDS.join(", ")}`),
    window: read("window", (text) => POLICY.test(text), say`not the name of a running mean`),
    problems,
  };
}

export class Address {
  #model;
  #source;
  #wanted; // until it is applied
  #awaited = null; // the policy of the address, until it has a release: a display may be opened before
  #writtenAt = 0;
  #timer = 0;

  constructor(model, source, wanted) {
    this.#model = model;
    this.#source = source;
    this.#wanted = wanted;
  }

  draw() {
    if (this.#awaited !== null) this.#await();
    if (this.#wanted !== null && this.#model.connection === "live") this.#apply();
    if (this.#wanted === null) this.#writeSoon();
  }

  // Until the reader chooses another policy.
  #await() {
    const policy = this.#awaited;
    const isChosen = this.#source.policy === null && this.#model.policies.includes(policy);
    if (isChosen || this.#source.policy !== null) this.#awaited = null;
    if (!isChosen) return;
    notify([]);
    this.#source.change(policy);
  }

  // Once the stored hours are known.
  #apply() {
    const { policy, hour, cell, show, window, problems } = this.#wanted;
    const model = this.#model;
    if (policy !== null && !model.policies.includes(policy)) {
      problems.push(say`There is nothing of the policy ${policy} yet; this is the map's default.`);
      this.#wanted = { ...this.#wanted, policy: null };
      this.#awaited = policy;
      model.setConnection("connecting");
      this.#source.change(null);
      return;
    }
    this.#wanted = null;
    if (show === "running" && model.windows.size === 0) problems.push(say`There are no running means.`);
    else if (window !== null && !model.windows.has(window)) problems.push(say`There is no running mean ${window}.`);
    if (show === "continual" && !model.hasContinual) problems.push(say`This policy is not a continual one.`);
    if (hour !== null && model.kind !== "running") {
      const index = model.slots.findIndex(({ slot }) => slot === hour);
      if (index >= 0) model.show(index, false);
      else problems.push(say`The hour ${hour.replace("T", " ")} is not stored; this is the latest.`);
    }
    if (cell !== null) {
      if ([...Object.values(model.layers), ...model.windows.values()].some(({ cells }) => cells.includes(cell))) model.select(cell);
      else problems.push(say`There is nothing of the hexagon ${cell}.`);
    }
    notify(problems);
  }

  #writeSoon() {
    clearTimeout(this.#timer);
    const wait = this.#writtenAt + WRITE_MS - performance.now();
    if (wait <= 0) this.#write();
    else this.#timer = setTimeout(() => this.#write(), wait);
  }

  #write() {
    const { following, slot, selected, chosen, chosenWindow: window } = this.#model;
    const url = new URL(location.href);
    const chosenOnes = { policy: this.#source.policy ?? this.#awaited, hour: following ? null : slot, cell: selected, show: chosen, window };
    for (const [name, value] of Object.entries(chosenOnes)) {
      if (value === null) url.searchParams.delete(name);
      else url.searchParams.set(name, value);
    }
    const text = url.href.replaceAll("%3A", ":"); // a colon is allowed in a query
    if (text === location.href) return;
    history.replaceState(null, "", text);
    this.#writtenAt = performance.now();
  }
}

function notify(sentences) {
  const node = byId("remark");
  node.hidden = sentences.length === 0;
  const close = element("button", { type: "button", class: "close", "aria-label": say`Close this notice`, onclick: () => (node.hidden = true) }, "×");
  node.replaceChildren(element("span", {}, sentences.join(" ")), close);
}
