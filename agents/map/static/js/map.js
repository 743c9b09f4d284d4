// The hexagons. A graticule and a scale show place and distance; an operator can add a timetable and a base map.

import { isMarked } from "./alarms.js";
import { certainties, opacityOf } from "./certainty.js";
import { clusterColour } from "./clusters.js";
import { differenceColour, fillOf } from "./colour.js";
import { MOST, differenceOf } from "./compare.js";
import { element } from "./dom.js";
import { Graticule } from "./graticule.js";
import { horizonWords, windowHours } from "./spans.js";
import { addSurroundings } from "./surroundings.js";
import { intervalOf, isContinual, isEstimate, isOfModel, isRunning, spanOf, stateOf, statusOf, valueOf } from "./values.js";
import { say } from "./words.js";

const HOVERS = matchMedia("(hover: hover)").matches; // without hover, a tap opens the panel, which shows the same
const OVERLAY_Z = 400; // of Leaflet's overlay pane; the next pane is at 500
const CLUSTER_OPACITY = 0.85;
const ROOM_MIN = 80; // px
const NEAR_ZOOM = 13;
const STILL = matchMedia("(prefers-reduced-motion: reduce)");
const WORLD = { center: [20, 0], zoom: 2 };

// Keep tooltips inside the map: Leaflet lets them cross its edge, where they are cut off.
const Tip = L.Tooltip.extend({
  _setPosition(at) {
    L.Tooltip.prototype._setPosition.call(this, at);
    const box = this._container.getBoundingClientRect();
    const edge = this._map.getContainer().getBoundingClientRect();
    const right = Math.max(edge.left - box.left, Math.min(0, edge.right - box.right));
    const down = Math.max(edge.top - box.top, Math.min(0, edge.bottom - box.bottom));
    if (right || down) L.DomUtil.setPosition(this._container, L.DomUtil.getPosition(this._container).add([right, down]));
  },
});

export class MapView {
  #model;
  #map;
  #polygons = new Map();
  #marks = L.layerGroup(); // of hexagons with an alarm
  #fittedPolicy = null;
  #fittedZoom = 0;
  #isFitting = false;
  #isMoved = false; // by the reader, since the map was fitted

  constructor(model, node) {
    this.#model = model;
    this.#map = L.map(node, { ...WORLD, attributionControl: false, zoomSnap: 0.25, zoomControl: false, minZoom: 2 });
    L.control.zoom({ position: "topright", zoomInTitle: say`Zoom in`, zoomOutTitle: say`Zoom out` }).addTo(this.#map);
    this.#marks.addTo(this.#map);
    L.control.scale({ imperial: false, position: "bottomright" }).addTo(this.#map);
    addSurroundings(model, this.#map, new Graticule().addTo(this.#map));
    this.#map.on("movestart zoomstart", () => (this.#isMoved ||= !this.#isFitting));
    new ResizeObserver(() => {
      this.#map.invalidateSize();
      if (!this.#isMoved) this.#fittedPolicy = null; // the text above it may have grown
      this.#fit();
    }).observe(node);
  }

  // Move the map if the hexagon is below `bottom` on the screen, px, where something covers it.
  reveal(cell, bottom) {
    const polygon = this.#polygons.get(cell);
    const node = this.#map.getContainer();
    if (polygon === undefined || node.clientHeight === 0) return; // behind the table
    if (bottom - node.getBoundingClientRect().top < ROOM_MIN) window.scrollBy({ top: node.getBoundingClientRect().top, behavior: "instant" });
    const { top } = node.getBoundingClientRect();
    const room = bottom - Math.max(0, top);
    const { y } = this.#map.latLngToContainerPoint(polygon.getCenter());
    if (top + y < ROOM_MIN / 2 || top + y > bottom - ROOM_MIN / 2) this.#map.panBy([0, top + y - (bottom - room / 2)], { animate: !STILL.matches });
  }

  // All hexagons, or what the reader has zoomed in on.
  bounds() {
    return this.#map.getZoom() > this.#fittedZoom || this.#polygons.size === 0 ? this.#map.getBounds() : this.#all();
  }

  // Show at least these bounds, at the size that the map has now.
  show(bounds) {
    this.#map.invalidateSize({ pan: false });
    this.#fitTo(bounds, {});
  }

  draw() {
    const records = this.#model.records();
    const cells = new Set([...this.#model.cells, ...records.keys()]);
    for (const [cell, polygon] of this.#polygons) {
      if (!cells.has(cell)) {
        polygon.remove();
        this.#polygons.delete(cell);
      }
    }
    for (const cell of cells) this.#style(cell, records.get(cell));
    this.#marks.clearLayers();
    for (const [cell, record] of records) if (isMarked(record) && this.#polygons.has(cell)) this.#mark(this.#polygons.get(cell).getCenter());
    this.#polygons.get(this.#model.selected)?.bringToFront();
    this.#fit();
  }

  #style(cell, record) {
    const polygon = this.#polygons.get(cell) ?? this.#make(cell);
    if (polygon === null) return;
    const { byCluster, clusterOf, range, unit } = this.#model;
    const cluster = byCluster ? (clusterOf.get(cell) ?? null) : null;
    const ofCluster = cluster === null ? null : clusterColour(cluster);
    const classes = certainties(unit, range);
    const [fill, opacity] = byCluster ? [ofCluster, CLUSTER_OPACITY] : this.#paintOf(cell, record, range, classes);
    polygon.setStyle({ fillColor: fill ?? "transparent", fillOpacity: fill === null ? 0 : opacity });
    const path = polygon.getElement();
    const names = ["cell", "leaflet-interactive"];
    if (cell === this.#model.selected) names.push("chosen");
    if (fill === null) names.push("empty");
    if (isEstimate(record)) names.push(record.stage === "predicted" ? "predicted" : "released");
    if (path.getAttribute("class") !== names.join(" ")) {
      path.setAttribute("class", names.join(" "));
      if (names.includes("released")) polygon.bringToFront(); // its solid edge over its neighbours' dashed ones
    }
    path.setAttribute("tabindex", "-1"); // no tab stop per hexagon: keyboard users have the table
    path.dataset.cell = cell;
    path.dataset.status = record === undefined ? "none" : statusOf(record);
    path.dataset.mean = valueOf(record) ?? "";
    path.dataset.cluster = cluster === null ? "" : cluster + 1;
  }

  #mark(place) {
    const icon = L.divIcon({ className: "alarm-mark", html: "!", iconSize: [20, 20] });
    L.marker(place, { icon, interactive: false, keyboard: false }).addTo(this.#marks);
  }

  // Fill and opacity: of the value, or of its difference from the hour that it is compared with.
  #paintOf(cell, record, range, classes) {
    if (this.#model.other === null) return [fillOf(record, range, classes), opacityOf(record, classes)];
    const found = differenceOf(record, this.#model.otherRecords().get(cell));
    if (found === null) return [null, 0];
    if (!found.isClear) return ["url(#hatch-unknown)", 0.92];
    return [differenceColour(found.difference, MOST * (range[1] - range[0])), 0.9];
  }

  // Show a place, as near as single hexagons can be seen.
  goTo(place) {
    this.#isMoved = true;
    this.#map.setView(place, Math.max(this.#map.getZoom(), NEAR_ZOOM), { animate: false });
  }

  // The hexagon with a number that a place is in, the smallest if there are several sizes; null: none.
  cellAt([latitude, longitude]) {
    const sizes = [...new Set([...this.#polygons.keys()].map((cell) => h3.getResolution(cell)))].sort((one, other) => other - one);
    return sizes.map((size) => h3.latLngToCell(latitude, longitude, size)).find((cell) => this.#polygons.has(cell)) ?? null;
  }

  #make(cell) {
    if (!h3.isValidCell(cell)) return null;
    const polygon = L.polygon(ringOf(cell), { weight: 1.25, bubblingMouseEvents: false, pane: this.#paneOf(h3.getResolution(cell)) });
    polygon.on("click", () => this.#model.select(cell));
    if (HOVERS) {
      const tip = new Tip({ sticky: true, className: "tip", opacity: 1 }, polygon);
      polygon.bindTooltip(tip.setContent(() => this.#tip(cell)));
    }
    polygon.addTo(this.#map);
    this.#polygons.set(cell, polygon);
    return polygon;
  }

  // A pane for each size of hexagons: small ones are drawn over the large ones that they lie in.
  #paneOf(resolution) {
    const name = `resolution-${resolution}`;
    const pane = this.#map.getPane(name) ?? this.#map.createPane(name);
    pane.style.zIndex = OVERLAY_Z + resolution;
    return name;
  }

  #tip(cell) {
    const record = this.#model.record(cell);
    const value = valueOf(record);
    const lines = [];
    if (value !== null) {
      lines.push(element("strong", {}, `${value} ${record.unit ?? ""}`));
      if (intervalOf(record) !== null) lines.push(element("span", {}, isOfModel(record) ? say`95 %: ${spanOf(record)}` : say`noise, 95 %: ${spanOf(record)}`));
      if (isEstimate(record)) lines.push(element("span", {}, stateOf(record)));
      if (isRunning(record)) lines.push(element("span", {}, windowHours(record)));
      if (isContinual(record)) lines.push(element("span", {}, horizonWords(record.running)));
    } else {
      lines.push(element("strong", {}, record === undefined ? say`nothing published` : stateOf(record)));
    }
    const { byCluster, clusterOf } = this.#model;
    if (byCluster && clusterOf.has(cell)) lines.push(element("span", {}, say`cluster ${clusterOf.get(cell) + 1}`));
    const place = this.#model.places?.words(cell) ?? null;
    return element("div", {}, ...lines, place === null ? null : element("span", { class: "where" }, place), element("code", {}, cell));
  }

  // Fit the view once per policy, as soon as the map is visible, and again when its size changes, until the reader moves it.
  #fit() {
    const node = this.#map.getContainer();
    const visible = node.clientWidth > 0 && node.clientHeight > 0; // not behind the table
    if (!visible || this.#fittedPolicy === this.#model.policy || this.#polygons.size === 0) return;
    this.#fittedPolicy = this.#model.policy;
    this.#map.invalidateSize({ pan: false }); // the map may just have got its place on the page
    this.#fitTo(this.#all(), { padding: [24, 24] });
    this.#isMoved = false;
    this.#fittedZoom = this.#map.getZoom();
  }

  #fitTo(bounds, options) {
    this.#isFitting = true;
    this.#map.fitBounds(bounds, { ...options, animate: false });
    this.#isFitting = false;
  }

  #all() {
    return L.featureGroup([...this.#polygons.values()]).getBounds();
  }
}

// A hexagon across the antimeridian has longitudes above 180 degrees, so that it is not drawn around the world.
function ringOf(cell) {
  const ring = h3.cellToBoundary(cell);
  const longitudes = ring.map(([, longitude]) => longitude);
  const across = Math.max(...longitudes) - Math.min(...longitudes) > 180;
  return across ? ring.map(([latitude, longitude]) => [latitude, (longitude + 360) % 360]) : ring;
}
