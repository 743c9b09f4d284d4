// The page before the first release: what is awaited, and until when, in place of a map of the world.

import { element } from "./dom.js";
import { parseExact } from "./exact.js";
import { clockOf, dayOf, hoursOf, zoneOf } from "./texts.js";
import { say } from "./words.js";

const RELOAD_MS = 60_000; // the next slot changes with time, also when nothing is published

export class Empty {
  #model;
  #node;
  #words;
  #map;
  #awaited = null;
  #loadedAt = -Infinity;
  #drawnKey = "";

  // words: where the sentences go; map: the node that they take the place of
  constructor(model, node, words, map) {
    this.#model = model;
    this.#node = node;
    this.#words = words;
    this.#map = map;
    setInterval(() => this.draw(), RELOAD_MS);
  }

  draw() {
    const { slots, connection } = this.#model;
    const isEmpty = slots.length === 0;
    this.#node.hidden = !isEmpty;
    this.#map.hidden = isEmpty;
    if (!isEmpty) return;
    if (connection === "live" && performance.now() - this.#loadedAt >= RELOAD_MS) this.#load();
    const key = `${connection} ${JSON.stringify(this.#awaited)}`;
    if (key === this.#drawnKey) return;
    this.#drawnKey = key;
    this.#words.replaceChildren(...sentences(connection, this.#awaited).map((each, i) => element("p", { class: i === 0 ? "lead" : null }, each)));
  }

  async #load() {
    this.#loadedAt = performance.now();
    try {
      const answer = await fetch("api/v1/awaited");
      if (answer.ok) this.#awaited = parseExact(await answer.text());
    } catch {
      this.#loadedAt = -Infinity; // retried with the next change
    }
    this.#model.changed();
  }
}

function sentences(connection, awaited) {
  if (connection !== "live") return [say`Connecting to this map's server.`];
  if (awaited === null) return [say`Nothing is published yet.`];
  return [say`Nothing is published yet.`, when(awaited.slot), say`Awaited: releases of the policy ${awaited.policy} on the topic ${awaited.topic}.`];
}

function when(slot) {
  if (slot === undefined) return say`The first means come when all readings of a first hour have been read.`;
  return say`The first means come when the hour ${hoursOf(slot)} of ${dayOf(slot.start)} closes, at ${clockOf(slot.closes)} (${zoneOf(slot.closes)}), if vehicles send by then.`;
}
