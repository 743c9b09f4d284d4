// The card of the chosen hexagon as a sheet over the lower part of a narrow page, so that a tap shows it at once.

import { byId, setText } from "./dom.js";
import { isContinual, isEstimate, isRunning, stateOf, valueOf } from "./values.js";
import { say } from "./words.js";

export class Sheet {
  #model;
  #card;
  #map;
  #cell = null;

  // map: the MapView, which moves so that the sheet does not cover the hexagon
  constructor(model, card, map) {
    this.#model = model;
    this.#card = card;
    this.#map = map;
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && model.selected !== null) model.select(model.selected);
    });
  }

  draw() {
    const { selected } = this.#model;
    if (selected === this.#cell) return;
    const before = this.#cell;
    this.#cell = selected;
    document.body.classList.toggle("with-sheet", selected !== null);
    if (selected === null) {
      this.#returnFocus(before);
      return;
    }
    this.#card.scrollTop = 0;
    if (getComputedStyle(this.#card).position === "fixed") this.#map.reveal(selected, this.#card.getBoundingClientRect().top);
    setText(byId("announcer"), say`Hexagon ${selected}: ${wordsOf(this.#model.record(selected))}`);
  }

  // The button that closed the card is gone: go back to the hexagon's row, or to the map.
  #returnFocus(cell) {
    if (document.activeElement !== document.body) return;
    const row = document.querySelector(`#table-view:not([hidden]) button[data-cell="${CSS.escape(cell)}"]`);
    (row ?? byId("map")).focus({ preventScroll: true });
  }
}

function wordsOf(record) {
  if (record === undefined) return say`nothing published`;
  const value = valueOf(record);
  const text = `${value} ${record.unit ?? ""}`;
  if (value === null) return stateOf(record);
  if (isEstimate(record)) return say`${text}, estimate`;
  return isRunning(record) || isContinual(record) ? say`${text}, running mean` : text;
}
