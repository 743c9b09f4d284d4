// The base map: vector tiles of one archive on the map's own server. Streets are drawn under the hexagons and names over
// them, with fonts of the reader's machine.

import { flavorOf, namesOf } from "./basemap_style.js";
import { element } from "./dom.js";

const SCRIPT = "vendor/protomaps-leaflet-5.1.0/protomaps-leaflet.js"; // 128 kB, fetched only if there is a base map
const NAMES_Z = 460; // over the hexagons, under the names of stops
const DARK = matchMedia("(prefers-color-scheme: dark)");

export class Basemap {
  #map;
  #url;
  #bounds;
  #hasStreetNames;
  #layers = [];

  // basemap: the address of the archive, its bounds in degrees, and whom to credit, each { text, link }
  constructor(map, { url, bounds: [west, south, east, north], credits }, { hasStreetNames }) {
    this.#map = map;
    this.#url = new URL(url, document.baseURI).href;
    this.#bounds = L.latLngBounds([south, west], [north, east]);
    this.#hasStreetNames = hasStreetNames;
    map.createPane("names").style.zIndex = NAMES_Z;
    map.getPane("names").setAttribute("aria-hidden", "true");
    addCredits(map, credits);
    const script = element("script", { src: SCRIPT });
    script.addEventListener("load", () => this.#draw());
    document.head.append(script);
    DARK.addEventListener("change", () => this.#draw());
  }

  #draw() {
    const library = globalThis.protomapsL;
    if (library === undefined) return; // not loaded yet
    for (const layer of this.#layers) layer.remove();
    const scheme = DARK.matches ? "dark" : "light";
    const flavor = flavorOf(scheme);
    const options = { url: this.#url, attribution: "", bounds: this.#bounds };
    this.#layers = [
      library.leafletLayer({ ...options, paintRules: library.paintRules(flavor), labelRules: [] }),
      library.leafletLayer({ ...options, paintRules: [], labelRules: namesOf(library, flavor, this.#hasStreetNames), pane: "names" }),
    ];
    for (const layer of this.#layers) layer.addTo(this.#map);
    this.#map.getContainer().dataset.basemap = scheme;
  }
}

function addCredits(map, credits) {
  const control = new L.Control({ position: "bottomright" });
  control.onAdd = () => {
    const parts = credits.flatMap(({ text, link }) => [" ", link === "" ? text : element("a", { href: link, rel: "noreferrer" }, text)]);
    return element("p", { class: "credits leaflet-control-attribution" }, ...parts.slice(1));
  };
  control.addTo(map);
}
