// Viridis: perceptually uniform, readable in greyscale and by colour-blind readers.    [Smith & van der Walt 2015]

import { isRunning, valueOf } from "./values.js";

const STOPS = (
  "440154 470d60 48186a 482374 472d7b 453781 424086 3e4989 3b528b 375b8d 33638d 2f6b8e 2c728e 297a8e 26828e 23898e 21918c " +
  "1f988b 1fa088 22a785 28ae80 32b67a 3fbc73 4ec36b 5ec962 70cf57 84d44b 98d83e addc30 c2df23 d8e219 ece51b fde725"
)
  .split(" ")
  .map((hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));

// Colour of a value on the scale [low, high]; values outside are clamped.
export function colourOf(value, [low, high]) {
  const share = Math.min(1, Math.max(0, (value - low) / (high - low)));
  const at = share * (STOPS.length - 1);
  const below = Math.min(STOPS.length - 2, Math.floor(at));
  const mixed = STOPS[below].map((part, i) => Math.round(part + (STOPS[below + 1][i] - part) * (at - below)));
  return `#${mixed.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}

export const HATCH = { suppressed: "suppressed", budget_exhausted: "exhausted", incomplete: "incomplete", deferred: "deferred" };

export function fillOf(record, range) {
  if (record === undefined) return null;
  const value = valueOf(record);
  if (value !== null) return colourOf(Number(value), range);
  if (isRunning(record)) return null;
  return `url(#hatch-${HATCH[record.status] ?? "incomplete"})`;
}
