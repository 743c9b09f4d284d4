// The page's parts, put together.

import { Budget } from "./budget.js";
import { byId, element, say } from "./dom.js";
import { Legend } from "./legend.js";
import { MapView } from "./map.js";
import { Model } from "./model.js";
import { Panel } from "./panel.js";
import { Source } from "./source.js";
import { Table } from "./table.js";
import { Timeline } from "./timeline.js";
import { dayOf, hoursOf } from "./words.js";

const TELL_MS = 60_000; // a screen reader is told of a new hour once a minute at most

const model = new Model();
const source = new Source(model);
const views = [
  new MapView(model, byId("map")),
  new Table(model, byId("table-view")),
  new Timeline(model),
  new Legend(model, byId("legend"), byId("legend-title")),
  new Panel(model, byId("cell-body")),
  new Budget(model, byId("budget")),
  { draw: drawConnection },
  { draw: drawPolicies },
  { draw: tell },
];
model.addEventListener("change", () => views.forEach((view) => view.draw()));

function drawConnection() {
  const node = byId("connection");
  node.dataset.state = model.connection;
  say(node, model.connection);
}

function drawPolicies() {
  const names = model.policies;
  const select = byId("policy");
  byId("policy-row").hidden = names.length < 2;
  if ([...select.options].map((each) => each.value).join() !== names.join()) {
    select.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
  }
  select.value = model.policy;
}

let toldAt = 0;
let toldSlot = null;

function tell() {
  const { shown, following } = model;
  if (shown === null || !following || shown.slot === toldSlot || Date.now() - toldAt < TELL_MS) return;
  if (toldSlot !== null) say(byId("told"), `New hour: ${dayOf(shown.start)}, ${hoursOf(shown)}`);
  toldSlot = shown.slot;
  toldAt = Date.now();
}

function showAs(table) {
  byId("map-view").hidden = table;
  byId("table-view").hidden = !table;
  byId("show-map").setAttribute("aria-pressed", String(!table));
  byId("show-table").setAttribute("aria-pressed", String(table));
  model.changed();
}

byId("show-map").addEventListener("click", () => showAs(false));
byId("show-table").addEventListener("click", () => showAs(true));
byId("policy").addEventListener("change", (event) => source.change(event.target.value));
byId("skip").addEventListener("click", () => showAs(true));

source.open();
