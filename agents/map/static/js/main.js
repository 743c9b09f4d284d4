// Entry point of the page: creates the views and connects them to the model.

import { Address, readAddress } from "./address.js";
import { alarmOfHour } from "./alarms.js";
import { Answers } from "./answers.js";
import { Budget } from "./budget.js";
import { Clusters } from "./clusters.js";
import { Compare } from "./compare.js";
import { byId, element, setText } from "./dom.js";
import { Empty } from "./empty.js";
import { Find } from "./find.js";
import { Freshness } from "./freshness.js";
import { Legend } from "./legend.js";
import { MapView } from "./map.js";
import { Model } from "./model.js";
import { Panel } from "./panel.js";
import { fitToPaper } from "./printing.js";
import { Share } from "./share.js";
import { Sheet } from "./sheet.js";
import { Spans } from "./spans.js";
import { Source } from "./source.js";
import { Table } from "./table.js";
import { Timeline } from "./timeline.js";
import { dayOf, hoursOf } from "./texts.js";
import { say, sayPage } from "./words.js";

const ANNOUNCE_MS = 60_000; // announce a new hour to screen readers at most once a minute

const LINKS = { "open-estimates": "estimates", "open-releases": "latest", "open-running": "running", "open-continual": "continual" };

sayPage();
const wanted = readAddress(location.search || (document.body.dataset.first ?? ""));
const model = new Model(wanted.show, wanted.window);
const source = new Source(model, wanted.policy);
const map = new MapView(model, byId("map"));
const views = [
  new Address(model, source, wanted),
  new Clusters(model, byId("clusters"), byId("clusters-body"), byId("legend-card")), // before the map, which reads its colours
  new Empty(model, byId("empty"), byId("empty-words"), byId("map")), // before the map, which needs its place on the page
  map,
  new Table(model, byId("table-view")),
  new Timeline(model),
  new Legend(model, byId("legend"), byId("legend-title"), byId("strip")),
  new Panel(model, byId("cell-body")),
  new Sheet(model, byId("cell"), map), // after the panel, whose card it is
  new Budget(model, byId("budget")),
  new Answers(model, byId("answers"), byId("answers-body")),
  new Share(model, byId("share"), () => showAs(false)),
  new Freshness(model, byId("connection"), byId("freshness")),
  new Spans(model),
  new Compare(model),
  new Find(model, map),
  { draw: drawPolicies },
  { draw: drawKinds },
  { draw: drawLinks },
  { draw: drawAlarm },
  { draw: announce },
];
model.addEventListener("change", () => views.forEach((view) => view.draw()));

function drawPolicies() {
  const names = model.policies;
  const select = byId("policy");
  byId("policy-row").hidden = names.length < 2;
  if ([...select.options].map((each) => each.value).join() !== names.join()) {
    select.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
  }
  select.value = model.policy;
}

function drawKinds() {
  const { hidesPresence } = model.layers.releases;
  const ofValue = model.value === null ? say`No single bus's speed can be picked out: random noise is added on purpose.` : say`No single bus's values can be picked out: random noise is added on purpose.`;
  setText(byId("promise-words"), hidesPresence ? say`No single bus can be picked out: random noise is added on purpose.` : ofValue);
  byId("kinds").hidden = !model.hasEstimates;
  byId("about-estimates").hidden = !model.hasEstimates;
  for (const kind of ["estimates", "releases"]) {
    byId(`show-${kind}`).setAttribute("aria-pressed", String(model.kind === kind));
  }
}

// The open data are those of the policy on display.
function drawLinks() {
  const query = source.policy === null ? "" : `?${new URLSearchParams({ policy: source.policy })}`;
  for (const [id, path] of Object.entries(LINKS)) {
    const href = `api/v1/${path}${query}`;
    if (byId(id).getAttribute("href") !== href) byId(id).setAttribute("href", href);
  }
}

function drawAlarm() {
  const words = alarmOfHour(model.records());
  byId("alarm").hidden = words === "";
  setText(byId("alarm"), words);
}

let announcedAt = 0;
let announcedSlot = null;

function announce() {
  const { shown, following } = model;
  if (shown === null || !following || shown.slot === announcedSlot || Date.now() - announcedAt < ANNOUNCE_MS) return;
  if (announcedSlot !== null) setText(byId("announcer"), say`New hour: ${dayOf(shown.start)}, ${hoursOf(shown)}`);
  announcedSlot = shown.slot;
  announcedAt = Date.now();
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
byId("show-estimates").addEventListener("click", () => model.choose("estimates"));
byId("show-releases").addEventListener("click", () => model.choose("releases"));
byId("policy").addEventListener("change", (event) => source.change(event.target.value));
byId("more").addEventListener("click", () => {
  const isOpen = document.querySelector(".switches").classList.toggle("more");
  byId("more").setAttribute("aria-expanded", String(isOpen));
});
byId("skip").addEventListener("click", () => showAs(true));

fitToPaper(map);
source.open();
model.changed();
