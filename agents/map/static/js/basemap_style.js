// Colours and names of the base map: greys that leave the colours to the hexagons, with streets that show through them.

// Of Protomaps' layers. Land use is barely told from the ground, for the same reason.
const GREYS = {
  light: { ground: "#f1f3f5", green: "#e2e9e2", built: "#e6e9ed", water: "#b9c9d6", street: "#b3bdc7", rail: "#8b97a4", name: "#3c4957", halo: "#ffffff" },
  dark: { ground: "#121a22", green: "#15221d", built: "#19232d", water: "#243a4c", street: "#455463", rail: "#5f6e7d", name: "#c3ced9", halo: "#0e141b" },
};
const GREEN = ["park_a", "park_b", "wood_a", "wood_b", "scrub_a", "scrub_b", "zoo"];
const BUILT = ["hospital", "industrial", "school", "aerodrome", "runway", "pier", "pedestrian", "buildings", "beach", "sand", "glacier"];
const FAMILY = "system-ui, sans-serif";

// scheme: "light" or "dark"
export function flavorOf(scheme) {
  const { ground, green, built, water, street, rail, name, halo } = GREYS[scheme];
  const all = (keys, colour) => Object.fromEntries(keys.map((key) => [key, colour]));
  return { earth: ground, ...all(GREEN, green), ...all(BUILT, built), water, major: street, railway: rail, boundaries: rail, name, halo };
}

// Names of places, and of large streets unless names of stops are there, which say the same.
export function namesOf({ CenteredTextSymbolizer, LineLabelSymbolizer }, { name, halo }, hasStreetNames) {
  const text = { labelProps: ["name"], fill: name, stroke: halo, width: 2 };
  const place = (kinds, minzoom, font) => ({
    dataLayer: "places",
    minzoom,
    symbolizer: new CenteredTextSymbolizer({ ...text, lineHeight: 1.2, font }),
    filter: (_, { props }) => kinds.includes(props.kind),
    sort: (one, other) => (one.min_zoom ?? 0) - (other.min_zoom ?? 0),
  });
  const streets = {
    dataLayer: "roads",
    minzoom: 13,
    symbolizer: new LineLabelSymbolizer({ ...text, font: `400 11px ${FAMILY}` }),
    filter: (_, { props }) => ["highway", "major_road"].includes(props.kind),
  };
  return [place(["locality"], 7, `600 13px ${FAMILY}`), place(["neighbourhood", "macrohood"], 13, `500 12px ${FAMILY}`), ...(hasStreetNames ? [streets] : [])];
}
