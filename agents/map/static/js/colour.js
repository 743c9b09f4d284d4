// Viridis: perceptually uniform, readable in greyscale and by colour-blind readers.    [Smith & van der Walt 2015]

import { isGuess, isRunning, valueOf } from "./values.js";

const STOPS = (
  "440154 470d60 48186a 482374 472d7b 453781 424086 3e4989 3b528b 375b8d 33638d 2f6b8e 2c728e 297a8e 26828e 23898e 21918c " +
  "1f988b 1fa088 22a785 28ae80 32b67a 3fbc73 4ec36b 5ec962 70cf57 84d44b 98d83e addc30 c2df23 d8e219 ece51b fde725"
)
  .split(" ")
  .map(partsOf);
// Red to blue, told apart by colour-blind readers too.    [ColorBrewer, RdYlBu]
const RED = "a50026 d73027 f46d43 fdae61 fee090 e0f3f8 abd9e9 74add1 4575b4 313695".split(" ").map(partsOf);

function partsOf(hex) {
  return [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

let stops = STOPS;

export function chooseColours(slowIsRed) {
  stops = slowIsRed ? RED : STOPS;
}

export const slowIsRed = () => stops === RED;

// Colour of a difference: red slower, blue faster.
export const differenceColour = (difference, most) => mix(RED, (difference + most) / (2 * most));

// Colour of a value on the scale [low, high]; values outside are clamped.
export function colourOf(value, [low, high]) {
  return mix(stops, (value - low) / (high - low));
}

function mix(colours, wanted) {
  const at = Math.min(1, Math.max(0, wanted)) * (colours.length - 1);
  const below = Math.min(colours.length - 2, Math.floor(at));
  const mixed = colours[below].map((part, i) => Math.round(part + (colours[below + 1][i] - part) * (at - below)));
  return `#${mixed.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}

export const HATCH = { suppressed: "suppressed", budget_exhausted: "exhausted", incomplete: "incomplete", deferred: "deferred" };

// classes: of certainty; null: a guess is coloured like other values
export function fillOf(record, range, classes = null) {
  if (record === undefined) return null;
  if (classes !== null && isGuess(record, classes)) return "url(#hatch-unknown)";
  const value = valueOf(record);
  if (value !== null) return colourOf(Number(value), range);
  if (isRunning(record)) return null;
  return `url(#hatch-${HATCH[record.status] ?? "incomplete"})`;
}
