// Event stream. The browser reconnects by itself and sends the last id it saw (Last-Event-ID). If it gives up, as it
// does after an HTTP error, open() is called again after a delay.

import { parseExact } from "./exact.js";

const TIMEOUT_MS = 50_000; // the server sends "alive" every 15 s
const RETRY_MS = [1_000, 4_000];

export class Source {
  #model;
  #stream = null;
  #policy = null; // the policy that the reader selected; null: the server's default
  #seen = "";
  #retryTimer = 0;
  #watchdog = 0;

  // policy: the one of the address, or null
  constructor(model, policy) {
    this.#model = model;
    this.#policy = policy;
  }

  get policy() {
    return this.#policy;
  }

  open() {
    this.close();
    const query = new URLSearchParams();
    if (this.#policy !== null) query.set("policy", this.#policy);
    if (this.#seen !== "") query.set("seen", this.#seen);
    this.#stream = new EventSource(`api/v1/events?${query}`);
    const on = (name, handle) =>
      this.#stream.addEventListener(name, (event) => {
        if (event.lastEventId !== "") this.#seen = event.lastEventId;
        this.#restartWatchdog();
        handle(parseExact(event.data));
      });
    on("reset", () => this.#model.reset(this.#policy));
    on("slots", (view) => this.#model.applySlots(view));
    on("release", (record) => this.#model.apply("releases", record));
    on("estimate", (record) => this.#model.apply("estimates", record));
    on("running", (record) => this.#model.apply("running", record));
    on("continual", (record) => this.#model.apply("continual", record));
    on("budget", (record) => this.#model.applyBudget(record));
    on("ready", ({ policy }) => {
      this.#model.setConnection("live");
      this.#followDefault(policy);
    });
    on("status", (status) => this.#model.applyStatus(status));
    on("alive", ({ policy }) => this.#followDefault(policy));
    this.#stream.addEventListener("error", () => this.#lost());
    this.#restartWatchdog();
  }

  change(policy) {
    this.#policy = policy;
    this.#seen = "";
    this.#model.reset(policy);
    this.open();
  }

  // Switch when the server's default policy changes: a page on a wall display is never reloaded.
  #followDefault(policy) {
    if (this.#policy === null && policy !== this.#model.policy) this.change(null);
  }

  close() {
    this.#stream?.close();
    clearTimeout(this.#retryTimer);
    clearTimeout(this.#watchdog);
  }

  #restartWatchdog() {
    clearTimeout(this.#watchdog);
    this.#watchdog = setTimeout(() => {
      this.#model.setConnection("reconnecting");
      this.open();
    }, TIMEOUT_MS);
  }

  #lost() {
    this.#model.setConnection("reconnecting");
    if (this.#stream.readyState !== EventSource.CLOSED) return;
    clearTimeout(this.#retryTimer);
    const [least, most] = RETRY_MS;
    this.#retryTimer = setTimeout(() => this.open(), least + Math.random() * (most - least));
  }
}
