// Which hours the map shows the means of: one hour, or those of a running mean.

import { byId, element, setText } from "./dom.js";
import { clockOf, dateOf, dayOf, hoursOf, zoneOf } from "./texts.js";
import { say } from "./words.js";

const WORDS = {
  today: say`Today so far`,
  "24h": say`The last 24 hours`,
  "7d": say`The last 7 days`,
  same_hour: say`This hour of days like this one`,
  period: say`A part of the day`,
};
const HOUR = say`This hour`;
const HORIZON = say`Since the horizon's start`;
const DAY_MS = 86_400_000;
const CONTINUAL = "continual:"; // no name of a running mean has a colon

const ORDER = Object.keys(WORDS);

// Running means by the length of their windows.
export const inOrder = (windows) => [...windows].sort((one, other) => ORDER.indexOf(one.window) - ORDER.indexOf(other.window));

// A running mean by its window, and by its name where that tells more.
export function windowWords({ name, window }) {
  if (window === "period") return name.replaceAll(/[-_]/g, " ").replace(/^./, (letter) => letter.toUpperCase()); // such as "Morning peak"
  const words = WORDS[window] ?? window;
  return name === window ? words : `${words} (${name})`;
}

export const windowPhrase = (window) => windowWords(window).replace(/^./, (letter) => letter.toLowerCase());

// The hours that a running mean is of, up to its end.
export const windowHours = ({ start, end }) => say`${`${dateOf(start)} ${clockOf(start)}`} to ${start.slice(0, 10) === end.slice(0, 10) ? clockOf(end) : `${dateOf(end)} ${clockOf(end)}`}`;

// A horizon, from the part `running` of a release: its mean is that of all hours since then.
export const horizonWords = ({ horizon, last_date: last }) => (isWeek(horizon, last) ? say`This week so far, since ${dayOf(horizon)}` : say`Since ${dayOf(horizon)}`);

const isWeek = (first, last) => new Date(`${first}T00:00Z`).getUTCDay() === 1 && Date.parse(last) - Date.parse(first) === 6 * DAY_MS;

// The title of what is on display.
export function spanTitle(model) {
  const { kind, shown, window } = model;
  if (kind === "running") return windowWords(window);
  if (kind !== "continual") return `${dayOf(shown.start)}, ${hoursOf(shown)}`;
  const part = runningOf(model);
  return part === null ? HORIZON : horizonWords(part);
}

// The instant up to which it is, with what a continual policy guarantees.
export function asOfWords(model) {
  const { kind, shown } = model;
  const at = `${clockOf(shown.end)} (${zoneOf(shown.end)})`;
  if (kind !== "running" && kind !== "continual") return say`as of ${at}`;
  const part = kind === "continual" ? runningOf(model) : null;
  const asOf = say`as of ${`${dayOf(shown.end)}, ${at}`}`;
  return part === null ? asOf : say`${asOf} · guarantee until ${dayOf(part.last_date)}`;
}

const runningOf = (model) => [...model.records().values()][0]?.running ?? null;

export class Spans {
  #model;
  #row;
  #select;

  constructor(model) {
    this.#model = model;
    this.#row = byId("spans");
    this.#select = byId("span");
    this.#select.addEventListener("change", () => this.#choose(this.#select.value));
  }

  draw() {
    const { windows, hasContinual, hourKind, kind, window } = this.#model;
    const choices = inOrder(windows.values()).map((each) => [each.name, windowWords(each)]);
    if (hourKind !== "continual") choices.unshift(["", HOUR]);
    if (hasContinual) choices.push([CONTINUAL, HORIZON]);
    this.#row.hidden = choices.length < 2;
    const text = JSON.stringify(choices);
    if (this.#select.dataset.choices !== text) {
      this.#select.dataset.choices = text;
      this.#select.replaceChildren(...choices.map(([value, words]) => element("option", { value }, words)));
    }
    this.#select.value = kind === "running" ? window.name : kind === "continual" ? CONTINUAL : "";
    byId("about-running").hidden = windows.size === 0;
    byId("about-continual").hidden = !hasContinual;
  }

  #choose(value) {
    if (value === "") this.#model.choose(null);
    else if (value === CONTINUAL) this.#model.choose("continual");
    else this.#model.choose("running", value);
    setText(byId("announcer"), say`Shown: ${this.#select.selectedOptions[0].textContent}`);
  }
}
