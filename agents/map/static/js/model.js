// State of the page. Views read it and draw it; only this file, layer.js and source.js change it.

import { slotBefore } from "./compare.js";
import { parseExact } from "./exact.js";
import { Layer, WindowLayer } from "./layer.js";
import { inOrder } from "./spans.js";
import { policyOf } from "./values.js";

const PATHS = { releases: "api/v1/latest", estimates: "api/v1/estimates", continual: "api/v1/continual" };

export class Model extends EventTarget {
  // chosen: the kind that the reader chose: "estimates", "releases", "running" or "continual"; null: estimates if there
  // are any. chosenWindow: name of the running mean that the reader chose, or null
  constructor(chosen, chosenWindow) {
    super();
    this.chosen = chosen;
    this.chosenWindow = chosenWindow;
    this.policies = [];
    this.selected = null;
    this.compared = 0; // hours before the one on display, which it is compared with; 0: with none
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
    this.layers = { releases: new Layer(), estimates: new Layer(), continual: new Layer() };
    this.windows = new Map(); // name of a running mean -> its layer
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

  get hasContinual() {
    return this.layers.continual.slots.length > 0;
  }

  // The kind of what is known of single hours: what the map shows unless the reader chose a running mean.
  get hourKind() {
    if (this.hasEstimates) return this.chosen === "releases" ? "releases" : "estimates";
    return this.layers.releases.slots.length === 0 && this.hasContinual ? "continual" : "releases";
  }

  get hourLayer() {
    return this.layers[this.hourKind];
  }

  get kind() {
    if (this.chosen === "running" && this.windows.size > 0) return "running";
    return this.chosen === "continual" && this.hasContinual ? "continual" : this.hourKind;
  }

  // The kind whose last days the card has: that on display, or of a running mean what is known of single hours.
  get hours() {
    return this.kind === "running" ? this.hourKind : this.kind;
  }

  get hourSlots() {
    return this.layers[this.hours].slots;
  }

  // The running mean that the reader chose, else that of the shortest window.
  get window() {
    return this.windows.get(this.chosenWindow) ?? inOrder(this.windows.values())[0] ?? null;
  }

  get layer() {
    return this.kind === "running" ? this.window : this.layers[this.kind];
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

  // The slot that the one on display is compared with, or null.
  get other() {
    return this.kind === "running" || this.kind === "continual" ? null : slotBefore(this.slots, this.slot, this.compared);
  }

  otherRecords() {
    return this.other === null ? new Map() : this.records(this.other);
  }

  compare(hours) {
    this.compared = hours;
    if (this.other !== null) this.#load(this.other);
    this.changed();
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
    this.layers.continual.applySlots(view.continual);
    this.#applyWindows(view.running);
    this.queries = view.queries ?? [];
    this.clusterings = view.clusterings ?? [];
    this.#showAvailable();
  }

  #applyWindows(views) {
    const before = this.windows;
    this.windows = new Map(views.map(({ name }) => [name, before.get(name) ?? new WindowLayer()]));
    for (const view of views) this.windows.get(view.name).applySlots(view);
  }

  apply(kind, record) {
    if (policyOf(record) !== this.policy) return;
    (kind === "running" ? this.windows.get(record.name) : this.layers[kind])?.add(record);
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

  // window: name of a running mean
  choose(kind, window = null) {
    this.chosen = kind;
    this.chosenWindow = window;
    if (kind === "running" || kind === "continual") this.byCluster = false;
    this.#showAvailable();
    this.changed();
  }

  // following: whether the next hour takes its place as soon as it is published
  show(index, following = index === this.slots.length - 1) {
    this.slot = this.slots[index].slot;
    this.following = following;
    this.#load(this.slot);
    if (this.other !== null) this.#load(this.other);
    if (index + 1 < this.slots.length) this.#load(this.slots[index + 1].slot);
    this.changed();
  }

  // Fetch the records of a stored hour that are missing.
  load(slot) {
    if (this.hourLayer.slots.some((each) => each.slot === slot)) this.#load(slot, this.hourKind, this.hourLayer);
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

  async #load(slot, kind = this.kind, layer = this.layer) {
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
