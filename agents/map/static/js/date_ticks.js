// Dates below the slider, and the hour below its thumb. Screen readers have them in the slider's own text.

import { element, setText } from "./dom.js";
import { clockOf, dayOf } from "./texts.js";

const THUMB = 16; // px, as wide as in style.css: at either end its middle is half of it from the edge
const GAP = 6; // px, the least between two names

const FORMATS = [(text) => dayOf(text).slice(0, -5), (text) => dayOf(text).slice(4, -5), (text) => dayOf(text).slice(4, -5).split(" ")[0]];

export class DateTicks {
  #ticks;
  #thumb;
  #slots = [];
  #index = 0;
  #drawnKey = "";

  constructor(ticks, thumb) {
    this.#ticks = ticks;
    this.#thumb = thumb;
    new ResizeObserver(() => this.draw(this.#slots, this.#index)).observe(ticks);
  }

  draw(slots, index) {
    [this.#slots, this.#index] = [slots, index];
    const width = this.#ticks.clientWidth;
    if (slots.length === 0 || width === 0) return;
    const x = (at) => THUMB / 2 + (slots.length < 2 ? 0 : at / (slots.length - 1)) * (width - THUMB);
    this.#drawThumb(x(index), width, clockOf(slots[index].start));
    const days = daysOf(slots).map((day) => ({ ...day, x: x(day.at) }));
    const key = `${width} ${days.map(({ date, x: left }) => `${date} ${left}`)}`;
    if (key === this.#drawnKey) return;
    this.#drawnKey = key;
    this.#ticks.replaceChildren(...this.#draw(days, width));
  }

  #drawThumb(at, width, clock) {
    setText(this.#thumb, clock);
    const half = this.#thumb.offsetWidth / 2;
    this.#thumb.style.left = `${Math.min(width - half, Math.max(half, at))}px`;
  }

  // The longest names for which all days have room; if none has, the shortest with a day's month where it fits.
  #draw(days, width) {
    const tick = (day, name) => {
      const node = element("span", { class: "tick" }, name);
      node.style.left = `${day.x}px`;
      return node;
    };
    const sizes = FORMATS.map((format) => days.map((day) => this.#widthOf(format(day.date))));
    const fits = (widths) => days.every((day, i) => day.x + widths[i] <= (days[i + 1]?.x ?? width + GAP) - GAP);
    const chosen = sizes.findIndex(fits);
    if (chosen >= 0) return days.map((day) => tick(day, FORMATS[chosen](day.date)));
    let free = 0;
    return days.map((day, i) => {
      const named = day.x >= free && day.x + sizes[1][i] <= width;
      if (named) free = day.x + sizes[1][i] + GAP;
      return tick(day, named ? FORMATS[1](day.date) : "");
    });
  }

  #widthOf(name) {
    const probe = element("span", { class: "tick" }, name);
    this.#ticks.append(probe);
    const width = probe.offsetWidth;
    probe.remove();
    return width;
  }
}

// Each local date, with the index of its first slot.
function daysOf(slots) {
  const days = [];
  slots.forEach(({ start }, at) => {
    const date = start.slice(0, 10);
    if (days[days.length - 1]?.date !== date) days.push({ date, at });
  });
  return days;
}
