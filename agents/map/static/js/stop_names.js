// Names of stops over the hexagons, at close zooms: as many as fit beside each other, those with most routes first.

import { element } from "./dom.js";

const PANE_Z = 470; // over the hexagons, under tooltips
const LEAST_ZOOM = 13;
const MOST = 120; // names at a time
const HEIGHT = 17; // pixels
const OFFSET = 7; // from the stop to its name
const FONT = "600 12px system-ui, sans-serif";

export const StopNames = L.LayerGroup.extend({
  // stops: a GeoJSON FeatureCollection
  initialize({ features }) {
    L.LayerGroup.prototype.initialize.call(this);
    this._stops = features
      .map(({ geometry, properties }) => ({ ...properties, place: L.latLng(geometry.coordinates[1], geometry.coordinates[0]) }))
      .sort((one, other) => other.routes.length - one.routes.length);
    this._brush = document.createElement("canvas").getContext("2d");
    this._brush.font = FONT;
  },

  onAdd(map) {
    L.LayerGroup.prototype.onAdd.call(this, map);
    const pane = map.createPane("stops");
    pane.style.zIndex = PANE_Z;
    pane.setAttribute("aria-hidden", "true"); // the table and the panel have the places of all hexagons
    map.on("moveend zoomend resize", this._redraw, this);
    this._redraw();
  },

  _redraw() {
    this.clearLayers();
    const map = this._map;
    if (map.getZoom() < LEAST_ZOOM) return;
    const bounds = map.getBounds();
    const placed = [];
    for (const stop of this._stops) {
      if (placed.length === MOST) return;
      if (!bounds.contains(stop.place)) continue;
      const box = this._box(stop);
      if (placed.some((other) => overlap(box, other))) continue;
      placed.push(box);
      this._add(stop);
    }
  },

  _box({ name, place }) {
    const { x, y } = this._map.latLngToContainerPoint(place);
    return [x - 4, y - HEIGHT / 2, x + OFFSET + this._brush.measureText(name).width + 4, y + HEIGHT / 2];
  },

  _add({ name, place }) {
    const html = element("div", {}, element("i"), element("span", {}, name));
    const icon = L.divIcon({ html, className: "stop", iconSize: null });
    this.addLayer(L.marker(place, { icon, interactive: false, keyboard: false, pane: "stops" }));
  },
});

const overlap = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];
