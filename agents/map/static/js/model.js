// What the page knows. Views read it and draw; nothing but this file and source.js changes it.

import { parseExact } from "./exact.js";

export class Model extends EventTarget {
  constructor() {
    super();
    this.policies = [];
    this.selected = null;
    this.connection = "connecting";
    this.forget(null);
  }

  #drawing = false;
  #anew = false;

  // policy: null where the next that is told of is to be shown
  forget(policy) {
    this.policy = policy;
    this.slots = [];
    this.cells = [];
    this.range = [0, 5];
    this.unit = "km/h";
    this.bySlot = new Map(); // slot -> cell -> release
    this.whole = new Set(); // slots of which nothing is missing here
    this.budgets = new Map(); // date -> record
    this.slot = null; // the one that is shown
    this.following = true;
    this.#anew = true;
  }

  // Views are told once a frame, however much has changed.
  changed() {
    if (this.#drawing) return;
    this.#drawing = true;
    requestAnimationFrame(() => {
      this.#drawing = false;
      this.dispatchEvent(new Event("change"));
    });
  }

  get shown() {
    return this.slots.find((each) => each.slot === this.slot) ?? null;
  }

  get index() {
    return this.slots.findIndex((each) => each.slot === this.slot);
  }

  releases(slot = this.slot) {
    return this.bySlot.get(slot) ?? new Map();
  }

  release(cell) {
    return this.releases().get(cell);
  }

  get budget() {
    return this.slot === null ? undefined : this.budgets.get(this.slot.slice(0, 10));
  }

  takeSlots(told) {
    this.policies = told.policies;
    this.changed();
    if (this.policy !== null && told.policy !== this.policy) return;
    this.policy = told.policy;
    const known = new Set(this.slots.map((each) => each.slot));
    const fresh = told.slots.filter((each) => !known.has(each.slot)).map((each) => each.slot);
    // What begins while we listen comes whole. Of what was there before, a snapshot has only the latest.
    for (const slot of this.#anew ? fresh.slice(-1) : fresh) this.whole.add(slot);
    this.#anew = false;
    this.slots = told.slots;
    this.cells = told.cells;
    this.range = told.range.map(Number);
    const names = new Set(told.slots.map((each) => each.slot));
    for (const slot of [...this.bySlot.keys()]) if (!names.has(slot)) this.bySlot.delete(slot);
    if (this.slots.length > 0 && (this.following || !names.has(this.slot))) this.show(this.slots.length - 1);
  }

  takeRelease(release) {
    if (release.release_id.split("/")[0] !== this.policy) return;
    const slot = `${release.date}T${release.slot}`;
    if (!this.bySlot.has(slot)) this.bySlot.set(slot, new Map());
    this.bySlot.get(slot).set(release.cell, release);
    if (release.unit !== undefined) this.unit = release.unit;
    this.changed();
  }

  takeBudget(record) {
    if (record.policy !== this.policy) return;
    const known = this.budgets.get(record.date);
    if (known === undefined || Number(record.seq) >= Number(known.seq)) this.budgets.set(record.date, record);
    this.changed();
  }

  show(index) {
    this.slot = this.slots[index].slot;
    this.following = index === this.slots.length - 1;
    this.#load(this.slot);
    if (index + 1 < this.slots.length) this.#load(this.slots[index + 1].slot);
    this.changed();
  }

  choose(cell) {
    this.selected = this.selected === cell ? null : cell;
    this.changed();
  }

  setConnection(state) {
    this.connection = state;
    this.changed();
  }

  async #load(slot) {
    if (this.whole.has(slot)) return;
    this.whole.add(slot);
    try {
      const answer = await fetch(`api/v1/latest?${new URLSearchParams({ policy: this.policy, slot })}`);
      if (!answer.ok) throw new Error(answer.statusText);
      for (const release of parseExact(await answer.text()).releases) this.takeRelease(release);
    } catch {
      this.whole.delete(slot); // asked for again when it is shown again
    }
  }
}
