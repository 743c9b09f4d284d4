// Routes, stops and the base map under the hexagons, each of which the operator may have named. All of it is from the
// map's own server.

import { Basemap } from "./basemap.js";
import { Places } from "./places.js";
import { Routes } from "./routes.js";
import { StopNames } from "./stop_names.js";

const PATHS = { overview: "api/v1/surroundings", routes: "api/v1/routes", stops: "api/v1/stops" };
const RETRY_MS = 5_000;
const DARK = matchMedia("(prefers-color-scheme: dark)");

// graticule: a layer that a base map replaces
export async function addSurroundings(model, map, graticule) {
  const { timetable, basemap } = await load(PATHS.overview);
  if (timetable !== null || basemap !== null) document.body.classList.add("see-through");
  const mark = () => (map.getContainer().dataset.scheme = DARK.matches ? "dark" : "light"); // for print
  mark();
  DARK.addEventListener("change", mark);
  if (basemap !== null) {
    new Basemap(map, basemap, { hasStreetNames: timetable === null });
    replace(graticule, map, basemap.bounds);
  }
  if (timetable === null) return;
  const [routes, stops] = await Promise.all([load(PATHS.routes), load(PATHS.stops)]);
  new Routes(routes).addTo(map);
  new StopNames(stops).addTo(map);
  model.places = new Places(stops);
  model.changed();
}

// The graticule is for places that the base map does not have.
function replace(graticule, map, [west, south, east, north]) {
  const bounds = L.latLngBounds([south, west], [north, east]);
  const update = () => (map.getBounds().intersects(bounds) ? graticule.remove() : graticule.addTo(map));
  map.on("moveend", update);
  update();
}

// Retried until the server answers: a page on a wall display is never reloaded.
async function load(path) {
  for (;;) {
    try {
      const answer = await fetch(path);
      if (answer.ok) return await answer.json();
    } catch {
      // as below
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}
