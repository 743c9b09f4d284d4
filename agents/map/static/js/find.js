// Search for a stop of the timetable, and "near me". Where the reader is stays in the browser.

import { byId, element, setText } from "./dom.js";
import { say } from "./words.js";

const LISTED = 3_000; // names: browsers filter longer lists slowly

export class Find {
  #model;
  #map;
  #input = byId("find");
  #near = byId("near");
  #places = null;

  // map: the MapView
  constructor(model, map) {
    this.#model = model;
    this.#map = map;
    this.#input.addEventListener("change", () => this.#find(this.#input.value));
    this.#near.hidden = !isSecureContext || navigator.geolocation === undefined;
    this.#near.addEventListener("click", () => this.#locate());
  }

  draw() {
    const { places } = this.#model;
    if (places === this.#places) return;
    this.#places = places;
    byId("find-row").hidden = places === null;
    const names = places === null ? [] : places.names().slice(0, LISTED);
    byId("stop-names").replaceChildren(...names.map((name) => element("option", { value: name })));
  }

  #find(name) {
    if (name.trim() === "") return;
    const place = this.#places.named(name);
    if (place === null) this.#say(say`No stop of this name.`);
    else this.#go(place);
  }

  #locate() {
    navigator.geolocation.getCurrentPosition(
      ({ coords }) => this.#go([coords.latitude, coords.longitude]),
      () => this.#say(say`Your browser does not say where you are.`),
    );
  }

  #go(place) {
    const cell = this.#map.cellAt(place);
    if (cell === null) return this.#say(say`No hexagon has numbers there.`);
    this.#say("");
    this.#map.goTo(place);
    if (this.#model.selected !== cell) this.#model.select(cell);
  }

  #say(words) {
    byId("found").hidden = words === "";
    setText(byId("found"), words);
  }
}
