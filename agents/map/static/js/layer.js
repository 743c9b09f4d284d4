// Releases or estimates of one policy, by slot; and running means, of which there is the newest of each hexagon.

import { isMarked } from "./alarms.js";
import { slotOf } from "./values.js";

export class Layer {
  slots = []; // ordered by time
  cells = [];
  range = [0, 5]; // of the colours
  complete = new Set(); // slots of which all records are loaded
  version = 0; // grows with each record
  hasDeferred = false; // whether a tracker has left out a query of a hexagon alone
  hasDevices = false; // whether buses with devices of their own are in the releases
  hasDelta = false; // whether the noise is Gaussian
  hidesPresence = false; // whether the relation is add_remove
  hasAlarms = false; // whether a hexagon of an estimate has an alarm of its own
  hasOtherValues = false; // whether values other than the speed are released
  #bySlot = new Map(); // slot -> cell -> record
  #isNew = true;

  records(slot) {
    return this.#bySlot.get(slot) ?? new Map();
  }

  applySlots({ slots, cells, range }) {
    const known = new Set(this.slots.map((each) => each.slot));
    const fresh = slots.filter((each) => !known.has(each.slot)).map((each) => each.slot);
    // The stream brings all records of slots that begin while it is open; a snapshot, only those of the latest slot.
    for (const slot of this.#isNew ? fresh.slice(-1) : fresh) this.complete.add(slot);
    this.#isNew = false;
    this.slots = slots;
    this.cells = cells;
    this.range = range.map(Number);
    const names = new Set(slots.map((each) => each.slot));
    for (const slot of [...this.#bySlot.keys()]) if (!names.has(slot)) this.#bySlot.delete(slot);
  }

  add(record) {
    const slot = slotOf(record);
    if (!this.#bySlot.has(slot)) this.#bySlot.set(slot, new Map());
    this.#bySlot.get(slot).set(record.cell, record);
    this.version += 1;
    this.hasDeferred ||= record.status === "deferred";
    this.hasDevices ||= record.device_epsilon !== undefined;
    this.hasDelta ||= (record.delta ?? record.running?.delta) !== undefined;
    this.hidesPresence ||= record.relation === "add_remove";
    this.hasAlarms ||= isMarked(record);
    this.hasOtherValues ||= (record.value ?? record.values) !== undefined;
  }

  // Add a fetched record: one from the stream is as new or newer.
  addMissing(record) {
    if (!this.records(slotOf(record)).has(record.cell)) this.add(record);
  }
}

// One running mean. The stream brings all of its records, also to a page that has just been opened.
export class WindowLayer {
  slots = []; // the latest
  cells = [];
  range = [0, 5]; // of the colours
  complete = { has: () => true, add: () => {}, delete: () => {} };
  version = 0; // grows with each record
  #byCell = new Map();

  records() {
    return this.#byCell;
  }

  applySlots({ name, window, of, slot, cells, range }) {
    Object.assign(this, { name, window, of, slots: [slot], cells, range: range.map(Number) });
    const stored = new Set(cells);
    for (const cell of [...this.#byCell.keys()]) if (!stored.has(cell)) this.#byCell.delete(cell);
  }

  add(record) {
    this.#byCell.set(record.cell, record);
    this.version += 1;
  }
}
