// Lines of latitude and longitude with their degrees, for a map without a base map.

import { say } from "./words.js";

const STEPS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30];
const MIN_SPACING = 130; // pixels between two lines

export const Graticule = L.LayerGroup.extend({
  onAdd(map) {
    L.LayerGroup.prototype.onAdd.call(this, map);
    (map.getPane("graticule") ?? map.createPane("graticule")).style.zIndex = 300;
    map.on("moveend zoomend resize", this._redraw, this);
    this._redraw();
  },

  onRemove(map) {
    map.off("moveend zoomend resize", this._redraw, this);
    L.LayerGroup.prototype.onRemove.call(this, map);
  },

  _redraw() {
    this.clearLayers();
    const map = this._map;
    const bounds = map.getBounds().pad(0.1);
    const degrees = (bounds.getEast() - bounds.getWest()) / map.getSize().x;
    const step = STEPS.find((each) => each >= degrees * MIN_SPACING) ?? 45;
    const [south, north] = [Math.max(-85, bounds.getSouth()), Math.min(85, bounds.getNorth())];
    const shown = map.getBounds();
    for (const longitude of steps(bounds.getWest(), bounds.getEast(), step)) {
      this._line([[south, longitude], [north, longitude]]);
      this._label([shown.getSouth(), longitude], longitude < 0 ? say`${text(longitude, step)}° W` : say`${text(longitude, step)}° E`, "meridian");
    }
    for (const latitude of steps(south, north, step)) {
      this._line([[latitude, bounds.getWest()], [latitude, bounds.getEast()]]);
      this._label([latitude, shown.getWest()], latitude < 0 ? say`${text(latitude, step)}° S` : say`${text(latitude, step)}° N`, "parallel");
    }
  },

  _line(places) {
    this.addLayer(L.polyline(places, { pane: "graticule", className: "graticule", interactive: false, weight: 1 }));
  },

  _label(place, words, kind) {
    const html = document.createElement("span");
    html.textContent = words;
    const icon = L.divIcon({ html, className: `degrees ${kind}`, iconSize: null });
    this.addLayer(L.marker(place, { icon, interactive: false, keyboard: false, pane: "graticule" }));
  },
});

function steps(from, to, step) {
  const values = [];
  for (let i = Math.ceil(from / step); i * step <= to; i += 1) values.push(i * step);
  return values;
}

const text = (degrees, step) => Math.abs(degrees).toFixed(step < 0.1 ? 2 : step < 1 ? 1 : 0);
