// Whether the data are up to date: the page's connection to its server, the server's to Kafka, and the newest record.

import { setText } from "./dom.js";
import { clockOf, dayOf } from "./texts.js";
import { say } from "./words.js";

const CHIPS = { connecting: say`connecting`, live: say`live`, past: say`past`, reconnecting: say`reconnecting`, stale: say`stale` };
const REDRAW_MS = 10_000; // ages grow, also when nothing comes

export class Freshness {
  #model;
  #chip;
  #line;

  constructor(model, chip, line) {
    this.#model = model;
    this.#chip = chip;
    this.#line = line;
    setInterval(() => this.draw(), REDRAW_MS);
  }

  draw() {
    const { connection, status } = this.#model;
    const stale = connection === "live" && status !== null && !status.live;
    this.#chip.dataset.state = stale ? "stale" : connection;
    setText(this.#chip, CHIPS[stale ? "stale" : connection === "live" && !isOfToday(this.#model) ? "past" : connection]);
    const words = sentence(this.#model);
    this.#line.hidden = words === "";
    this.#line.dataset.state = stale || connection === "reconnecting" ? "stale" : "live";
    setText(this.#line, words);
  }
}

// Whether the hour on display is of the city's present day, by the server's clock.
function isOfToday({ shown, status }) {
  if (shown === null || status === null) return true;
  const [, sign, hours, minutes] = /([+-])(\d\d):(\d\d)$/.exec(shown.start) ?? ["", "+", "0", "0"];
  const offset = (sign === "-" ? -1 : 1) * (Number(hours) * 60 + Number(minutes)) * 60_000;
  return new Date(Date.parse(status.now) + offset).toISOString().slice(0, 10) === shown.start.slice(0, 10);
}

function sentence({ connection, connectionSince, status }) {
  if (connection === "reconnecting") return say`No connection to this map's server for ${length(Date.now() - connectionSince)}. What you see is from before.`;
  if (status === null) return "";
  const now = Date.parse(status.now) + (performance.now() - status.receivedAt); // by the server's clock
  const age = (instant) => length(Math.max(0, now - Date.parse(instant)));
  if (!status.live) {
    return say`No news since ${dayOf(status.answered_at)}, ${clockOf(status.answered_at)} UTC (${age(status.answered_at)} ago): ${reason(status.kafka)}. What you see was published before.`;
  }
  return status.newest_record_at === null ? say`Nothing was published yet.` : say`Newest record: ${age(status.newest_record_at)} ago.`;
}

// The server's words, without their instant: "no Kafka broker answers for 2 of 8 partitions since ...".
const reason = (kafka) => kafka.replace(/ since .*$/, "");

function length(ms) {
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 1) return say`less than a minute`;
  if (minutes < 60) return say`${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? say`${hours} h ${minutes % 60} min` : say`${Math.floor(hours / 24)} days`;
}
