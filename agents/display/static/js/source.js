// The stream of changes. The browser comes back by itself and says what it has seen (Last-Event-ID); where it gives up,
// as it does when a proxy answers with an error, we do.

import { parseExact } from "./exact.js";

const SILENT_MS = 50_000; // the server says "alive" every 15 s
const AGAIN_MS = [1_000, 4_000];

export class Source {
  #model;
  #stream = null;
  #seen = "";
  #again = 0;
  #silent = 0;

  constructor(model) {
    this.#model = model;
  }

  open(policy = null) {
    this.close();
    const asked = new URLSearchParams();
    if (policy !== null) asked.set("policy", policy);
    if (this.#seen !== "") asked.set("seen", this.#seen);
    this.#stream = new EventSource(`api/v1/events?${asked}`);
    const hear = (name, take) =>
      this.#stream.addEventListener(name, (event) => {
        if (event.lastEventId !== "") this.#seen = event.lastEventId;
        this.#watch();
        take(parseExact(event.data));
      });
    hear("reset", () => this.#model.forget());
    hear("slots", (told) => this.#model.takeSlots(told));
    hear("release", (release) => this.#model.takeRelease(release));
    hear("budget", (record) => this.#model.takeBudget(record));
    hear("ready", () => this.#model.setConnection("live"));
    hear("alive", () => {});
    this.#stream.addEventListener("error", () => this.#lost());
    this.#watch();
  }

  change(policy) {
    this.#seen = "";
    this.#model.policy = policy;
    this.#model.forget();
    this.open(policy);
  }

  close() {
    this.#stream?.close();
    clearTimeout(this.#again);
    clearTimeout(this.#silent);
  }

  #watch() {
    clearTimeout(this.#silent);
    this.#silent = setTimeout(() => {
      this.#model.setConnection("reconnecting");
      this.open(this.#model.policy);
    }, SILENT_MS);
  }

  #lost() {
    this.#model.setConnection("reconnecting");
    if (this.#stream.readyState !== EventSource.CLOSED) return;
    clearTimeout(this.#again);
    const [least, most] = AGAIN_MS;
    this.#again = setTimeout(() => this.open(this.#model.policy), least + Math.random() * (most - least));
  }
}
