// State of the page. Views read it and draw it; only this file, layer.js and source.js change it.

import { parseExact } from "./exact.js";
import { Layer } from "./layer.js";
import { policyOf } from "./values.js";

const PATHS = { releases: "api/v1/latest", estimates: "api/v1/estimates" };

export class Model extends EventTarget {
  // chosen: the kind that the reader chose, "releases" or "estimates"; null: estimates if there are any
  constructor(chosen) {
    super();
    this.chosen = chosen;
    this.policies = [];
    this.selected = null;
    this.places = null; // where hexagons are, in words, if the map has a timetable
    this.connection = "connecting"; // to the server of the page
    this.connectionSince = Date.now();
    this.status = null; // the server's own connection to Kafka, see freshness.js
    this.reset(null);
  }

  #drawScheduled = false;

  // policy: null to show the policy of the next "slots" event
  reset(policy) {
    this.policy = policy;
    this.layers = { releases: new Layer(), estimates: new Layer() };
    this.unit = "km/h";
    this.value = null; // name of a value other than the speed
    this.budgets = new Map(); // date -> record
    this.queries = []; // the stored periods of queries over days, the newest of each query first
    this.clusterings = []; // ids of the stored clusterings, the newest first
    this.byCluster = false; // whether the map shows clusters in place of speeds
    this.clusterOf = new Map(); // cell -> index of its cluster, while the map shows clusters
    this.slot = null; // the slot on display
    this.following = true;
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

  get hasEstimates() {
    return this.layers.estimates.slots.length > 0;
  }

  get kind() {
    return this.hasEstimates && this.chosen !== "releases" ? "estimates" : "releases";
  }

  get layer() {
    return this.layers[this.kind];
  }

  get slots() {
    return this.layer.slots;
  }

  get cells() {
    return this.layer.cells;
  }

  get range() {
    return this.layer.range;
  }

  // Slots with a release or an estimate, ordered by time.
  get allSlots() {
    const byName = new Map(Object.values(this.layers).flatMap(({ slots }) => slots.map((each) => [each.slot, each])));
    return [...byName.values()].sort((one, other) => Date.parse(one.start) - Date.parse(other.start));
  }

  get shown() {
    return this.slots.find((each) => each.slot === this.slot) ?? null;
  }

  get index() {
    return this.slots.findIndex((each) => each.slot === this.slot);
  }

  // Records of the kind on display.
  records(slot = this.slot) {
    return this.layer.records(slot);
  }

  record(cell) {
    return this.records().get(cell);
  }

  get budget() {
    return this.slot === null ? undefined : this.budgets.get(this.slot.slice(0, 10));
  }

  applySlots(view) {
    this.policies = view.policies;
    this.changed();
    if (this.policy !== null && view.policy !== this.policy) return;
    this.policy = view.policy;
    this.layers.releases.applySlots(view);
    this.layers.estimates.applySlots(view.estimates);
    this.queries = view.queries ?? [];
    this.clusterings = view.clusterings ?? [];
    this.#showAvailable();
  }

  apply(kind, record) {
    if (policyOf(record) !== this.policy) return;
    this.layers[kind].add(record);
    if (record.unit !== undefined) this.unit = record.unit;
    if (record.value !== undefined) this.value = record.value;
    this.changed();
  }

  applyBudget(record) {
    if (record.policy !== this.policy) return;
    const known = this.budgets.get(record.date);
    if (known === undefined || Number(record.seq) >= Number(known.seq)) this.budgets.set(record.date, record);
    this.changed();
  }

  choose(kind) {
    this.chosen = kind;
    this.#showAvailable();
    this.changed();
  }

  // following: whether the next hour takes its place as soon as it is published
  show(index, following = index === this.slots.length - 1) {
    this.slot = this.slots[index].slot;
    this.following = following;
    this.#load(this.slot);
    if (index + 1 < this.slots.length) this.#load(this.slots[index + 1].slot);
    this.changed();
  }

  // Fetch the records of a stored hour that are missing.
  load(slot) {
    if (this.slots.some((each) => each.slot === slot)) this.#load(slot);
  }

  select(cell) {
    this.selected = this.selected === cell ? null : cell;
    this.changed();
  }

  setConnection(state) {
    if (state !== this.connection) this.connectionSince = Date.now();
    this.connection = state;
    this.changed();
  }

  applyStatus(status) {
    this.status = { ...status, receivedAt: performance.now() };
    this.changed();
  }

  // Show the slot on display, or the latest if the kind on display does not have it.
  #showAvailable() {
    if (this.slots.length === 0) return;
    if (this.following || this.index < 0) this.show(this.slots.length - 1);
    else this.show(this.index, false);
  }

  async #load(slot) {
    const { kind, layer } = this;
    if (layer.complete.has(slot)) return;
    layer.complete.add(slot);
    try {
      const answer = await fetch(`${PATHS[kind]}?${new URLSearchParams({ policy: this.policy, slot })}`);
      if (!answer.ok) throw new Error(answer.statusText);
      for (const record of parseExact(await answer.text())[kind]) layer.addMissing(record);
      this.changed();
    } catch {
      layer.complete.delete(slot); // retried when the slot is shown again
    }
  }
}
