// Routes of the timetable: thin lines under the hexagons, in the timetable's colours where these can be seen.

const PANE_Z = 350; // over the graticule, under the hexagons
const ZOOM_WIDE = 13;
const DARK = matchMedia("(prefers-color-scheme: dark)");
const NEUTRAL = { light: "#5b6b7b", dark: "#93a3b3" };
const LEAST_CONTRAST = 1.8; // of a line and the map
const GROUND = { light: "#eaeef1", dark: "#121a22" };
const MIXES = [0, 0.25, 0.5, 0.75];

export const Routes = L.LayerGroup.extend({
  // routes: a GeoJSON FeatureCollection
  initialize({ features }) {
    L.LayerGroup.prototype.initialize.call(this);
    this._features = features;
  },

  onAdd(map) {
    map.createPane("routes").style.zIndex = PANE_Z;
    const renderer = L.canvas({ pane: "routes", padding: 0.25 });
    this._lines = this._features.map(({ geometry, properties }) => {
      const places = geometry.coordinates.map((line) => line.map(([longitude, latitude]) => [latitude, longitude]));
      const line = L.polyline(places, { renderer, pane: "routes", interactive: false, smoothFactor: 1.5 });
      return [line, properties.color];
    });
    this._style();
    for (const [line] of this._lines) this.addLayer(line);
    L.LayerGroup.prototype.onAdd.call(this, map);
    map.on("zoomend", this._style, this);
    DARK.addEventListener("change", () => this._style());
    map.getContainer().dataset.routes = String(this._features.length);
  },

  _style() {
    const scheme = DARK.matches ? "dark" : "light";
    const weight = (this._map ?? this).getZoom?.() >= ZOOM_WIDE ? 3 : 2;
    for (const [line, colour] of this._lines) line.setStyle({ color: lineColour(colour, scheme), weight, opacity: 1 });
  },
});

// The route's own colour, mixed with black or white until it can be told from the map.
export function lineColour(colour, scheme) {
  if (colour === "" || colour === "#ffffff") return NEUTRAL[scheme]; // white: the default of GTFS
  const ink = scheme === "dark" ? 255 : 0;
  const parts = partsOf(colour);
  const mixed = MIXES.map((share) => parts.map((part) => Math.round(part + (ink - part) * share)));
  const seen = mixed.find((each) => contrast(luminance(each), luminance(partsOf(GROUND[scheme]))) >= LEAST_CONTRAST);
  return `#${(seen ?? mixed.at(-1)).map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}

const partsOf = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

// [WCAG 2.2, relative luminance and contrast ratio]
function luminance(parts) {
  const [red, green, blue] = parts.map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

const contrast = (one, other) => (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
