// Selection of the hour: a slider, a play button, and a button back to the latest hour.

import { DateTicks } from "./date_ticks.js";
import { byId, setText } from "./dom.js";
import { asOfWords, spanTitle } from "./spans.js";
import { countsOf, countsOfEstimates, countsOfRunning, dayOf, hoursOf } from "./texts.js";
import { say } from "./words.js";

const COUNTS = { releases: countsOf, estimates: countsOfEstimates, running: countsOfRunning, continual: countsOf };
const STEP_MS = 800;

export class Timeline {
  #model;
  #slider = byId("slot");
  #play = byId("play");
  #follow = byId("follow");
  #playing = 0;
  #ticks = new DateTicks(byId("ticks"), byId("thumb"));

  constructor(model) {
    this.#model = model;
    this.#slider.addEventListener("input", () => {
      this.#stop();
      model.show(Number(this.#slider.value));
    });
    this.#play.addEventListener("click", () => (this.#playing ? this.#stop() : this.#start()));
    this.#follow.addEventListener("click", () => {
      this.#stop();
      model.show(model.slots.length - 1);
    });
  }

  draw() {
    const { slots, shown, index, following, kind } = this.#model;
    byId("timeline").hidden = kind === "running"; // of which there is the newest
    this.#slider.max = String(Math.max(0, slots.length - 1));
    this.#slider.value = String(Math.max(0, index));
    this.#slider.disabled = this.#play.disabled = slots.length < 2;
    this.#follow.disabled = slots.length === 0 || following;
    if (shown === null) return;
    const records = [...this.#model.records().values()];
    const counts = COUNTS[this.#model.kind](records);
    this.#slider.setAttribute("aria-valuetext", `${dayOf(shown.start)}, ${hoursOf(shown)}`);
    this.#ticks.draw(slots, index);
    setText(byId("slot-title"), spanTitle(this.#model));
    setText(byId("as-of"), `${asOfWords(this.#model)} · ${counts}`);
  }

  #start() {
    if (this.#model.following) this.#model.show(0);
    this.#playing = setInterval(() => this.#step(), STEP_MS);
    this.#show(true);
  }

  #step() {
    const next = this.#model.index + 1;
    if (next < this.#model.slots.length) this.#model.show(next);
    if (this.#model.following) this.#stop();
  }

  #stop() {
    clearInterval(this.#playing);
    this.#playing = 0;
    this.#show(false);
  }

  #show(playing) {
    this.#play.classList.toggle("playing", playing);
    this.#play.setAttribute("aria-label", playing ? say`Pause` : say`Play the hours`);
  }
}
