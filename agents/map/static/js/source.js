// The stream of changes. The browser comes back by itself and says what it has seen (Last-Event-ID); where it gives up,
// as it does when a proxy answers with an error, we do.

import { parseExact } from "./exact.js";

const SILENT_MS = 50_000; // the server says "alive" every 15 s
const AGAIN_MS = [1_000, 4_000];

export class Source {
  #model;
  #stream = null;
  #asked = null; // the policy that a person chose; without, the server's choice is shown
  #seen = "";
  #again = 0;
  #silent = 0;

  constructor(model) {
    this.#model = model;
  }

  open() {
    this.close();
    const asked = new URLSearchParams();
    if (this.#asked !== null) asked.set("policy", this.#asked);
    if (this.#seen !== "") asked.set("seen", this.#seen);
    this.#stream = new EventSource(`api/v1/events?${asked}`);
    const hear = (name, take) =>
      this.#stream.addEventListener(name, (event) => {
        if (event.lastEventId !== "") this.#seen = event.lastEventId;
        this.#watch();
        take(parseExact(event.data));
      });
    hear("reset", () => this.#model.forget(this.#asked));
    hear("slots", (told) => this.#model.takeSlots(told));
    hear("release", (release) => this.#model.takeRelease(release));
    hear("budget", (record) => this.#model.takeBudget(record));
    hear("ready", (told) => {
      this.#model.setConnection("live");
      this.#compare(told.policy);
    });
    hear("alive", (told) => this.#compare(told.policy));
    this.#stream.addEventListener("error", () => this.#lost());
    this.#watch();
  }

  change(policy) {
    this.#asked = policy;
    this.#seen = "";
    this.#model.forget(policy);
    this.open();
  }

  // One policy follows another while the page is open, on a wall perhaps, where nobody reloads it.
  #compare(policy) {
    if (this.#asked === null && policy !== this.#model.policy) this.change(null);
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
      this.open();
    }, SILENT_MS);
  }

  #lost() {
    this.#model.setConnection("reconnecting");
    if (this.#stream.readyState !== EventSource.CLOSED) return;
    clearTimeout(this.#again);
    const [least, most] = AGAIN_MS;
    this.#again = setTimeout(() => this.open(), least + Math.random() * (most - least));
  }
}
