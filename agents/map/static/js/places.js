// Where a hexagon is, in words: the stops in it, and the routes that serve them.

import { say } from "./words.js";

const SHORT = 6; // routes in a tooltip and in the table

export class Places {
  #stops; // { name, routes, place: [latitude, longitude] }, those with most routes first
  #byResolution = new Map(); // resolution -> cell -> stops
  #known = new Map(); // cell -> place

  // stops: a GeoJSON FeatureCollection
  constructor({ features }) {
    this.#stops = features
      .map(({ geometry, properties }) => ({ ...properties, place: [geometry.coordinates[1], geometry.coordinates[0]] }))
      .sort((one, other) => other.routes.length - one.routes.length);
  }

  // The place of a cell: its stops, its routes, and the stop that is served by most routes; null: no stop is near.
  of(cell) {
    if (!this.#known.has(cell)) this.#known.set(cell, this.#find(cell));
    return this.#known.get(cell);
  }

  // Such as "near Guadalupe/8th, routes 1, 801", or null.
  words(cell, most = SHORT) {
    const place = this.of(cell);
    if (place === null) return null;
    if (place.stops.length === 0) return say`near ${place.name}, no stop inside`;
    return say`near ${place.name}, ${routesOf(place.routes, most)}`;
  }

  // Names of all stops, in order.
  names() {
    return [...new Set(this.#stops.map(({ name }) => name))].sort((one, other) => one.localeCompare(other));
  }

  // Where the stop of a name is, or the first whose name has these words; null: none.
  named(words) {
    const wanted = words.trim().toLowerCase();
    const by = (is) => this.#stops.find(({ name }) => is(name.toLowerCase()));
    return (by((name) => name === wanted) ?? by((name) => name.includes(wanted)))?.place ?? null;
  }

  #find(cell) {
    if (!h3.isValidCell(cell)) return null;
    const centre = h3.cellToLatLng(cell);
    const away = ({ place }) => h3.greatCircleDistance(centre, place, "km");
    const stops = this.#within(cell);
    if (stops.length > 0) {
      const most = stops.filter(({ routes }) => routes.length === stops[0].routes.length);
      const routes = [...new Set(stops.flatMap((stop) => stop.routes))].sort(byNumber);
      return { name: nearest(most, away).name, stops, routes };
    }
    const around = h3.gridDisk(cell, 1).flatMap((each) => this.#within(each));
    return around.length === 0 ? null : { name: nearest(around, away).name, stops, routes: [] };
  }

  #within(cell) {
    const resolution = h3.getResolution(cell);
    if (!this.#byResolution.has(resolution)) this.#byResolution.set(resolution, this.#index(resolution));
    return this.#byResolution.get(resolution).get(cell) ?? [];
  }

  #index(resolution) {
    const found = new Map();
    for (const stop of this.#stops) {
      const cell = h3.latLngToCell(...stop.place, resolution);
      if (!found.has(cell)) found.set(cell, []);
      found.get(cell).push(stop);
    }
    return found;
  }
}

export function routesOf(routes, most) {
  const shown = routes.slice(0, routes.length === most + 1 ? most + 1 : most); // not "and 1 more"
  if (routes.length > shown.length) return say`routes ${shown.join(", ")} and ${routes.length - shown.length} more`;
  return routes.length === 1 ? say`route ${shown[0]}` : say`routes ${shown.join(", ")}`;
}

const nearest = (stops, away) => stops.reduce((best, each) => (away(each) < away(best) ? each : best));

const byNumber = (one, other) => one.localeCompare(other, "en", { numeric: true });
