// State of the page. Views read it and draw it; only this file and source.js change it.

import { parseExact } from "./exact.js";

export class Model extends EventTarget {
  constructor() {
    super();
    this.policies = [];
    this.selected = null;
    this.connection = "connecting";
    this.reset(null);
  }

  #drawScheduled = false;
  #afterReset = false;

  // policy: null to show the policy of the next "slots" event
  reset(policy) {
    this.policy = policy;
    this.slots = [];
    this.cells = [];
    this.range = [0, 5];
    this.unit = "km/h";
    this.bySlot = new Map(); // slot -> cell -> release
    this.complete = new Set(); // slots of which all releases are loaded
    this.budgets = new Map(); // date -> record
    this.slot = null; // the slot on display
    this.following = true;
    this.#afterReset = true;
  }

  // Redraw the views at most once per animation frame.
  changed() {
    if (this.#drawScheduled) return;
    this.#drawScheduled = true;
    requestAnimationFrame(() => {
      this.#drawScheduled = false;
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

  applySlots(view) {
    this.policies = view.policies;
    this.changed();
    if (this.policy !== null && view.policy !== this.policy) return;
    this.policy = view.policy;
    const known = new Set(this.slots.map((each) => each.slot));
    const fresh = view.slots.filter((each) => !known.has(each.slot)).map((each) => each.slot);
    // The stream brings all releases of slots that begin while it is open; a snapshot, only those of the latest slot.
    for (const slot of this.#afterReset ? fresh.slice(-1) : fresh) this.complete.add(slot);
    this.#afterReset = false;
    this.slots = view.slots;
    this.cells = view.cells;
    this.range = view.range.map(Number);
    const names = new Set(view.slots.map((each) => each.slot));
    for (const slot of [...this.bySlot.keys()]) if (!names.has(slot)) this.bySlot.delete(slot);
    if (this.slots.length > 0 && (this.following || !names.has(this.slot))) this.show(this.slots.length - 1);
  }

  applyRelease(release) {
    if (release.release_id.split("/")[0] !== this.policy) return;
    const slot = `${release.date}T${release.slot}`;
    if (!this.bySlot.has(slot)) this.bySlot.set(slot, new Map());
    this.bySlot.get(slot).set(release.cell, release);
    if (release.unit !== undefined) this.unit = release.unit;
    this.changed();
  }

  applyBudget(record) {
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
    if (this.complete.has(slot)) return;
    this.complete.add(slot);
    try {
      const answer = await fetch(`api/v1/latest?${new URLSearchParams({ policy: this.policy, slot })}`);
      if (!answer.ok) throw new Error(answer.statusText);
      for (const release of parseExact(await answer.text()).releases) this.applyRelease(release);
    } catch {
      this.complete.delete(slot); // retried when the slot is shown again
    }
  }
}
