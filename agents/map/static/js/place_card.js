// Where the selected hexagon is: a line of words, and the names of its stops as a list.

import { element } from "./dom.js";
import { routesOf } from "./places.js";
import { say } from "./words.js";

const MOST_ROUTES = 24;

export function placeOf(cell, places) {
  const place = places?.of(cell) ?? null;
  if (place === null) return [];
  const names = [...new Set(place.stops.map(({ name }) => name))];
  const items = [...place.stops]
    .sort((one, other) => one.name.localeCompare(other.name))
    .map(({ name, routes }) => element("li", {}, `${name}: ${routesOf(routes, MOST_ROUTES)}`));
  const line = element("p", { class: "place", id: "cell-place" }, places.words(cell, MOST_ROUTES));
  if (names.length < 2) return [line];
  return [line, element("details", { class: "stops-inside" }, element("summary", {}, say`Its ${names.length} stops`), element("ul", {}, ...items))];
}
