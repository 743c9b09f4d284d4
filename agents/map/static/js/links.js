// Links to an hour, a policy and a hexagon, and buttons that copy them.

import { byId, element, setText } from "./dom.js";
import { say } from "./words.js";

const SHOWN_MS = 2_500;

// The parts that are null are left out: the link then opens on the page's own choice.
export function linkTo({ policy, hour, cell, show, window }) {
  const url = new URL(location.pathname, location.href);
  for (const [name, value] of Object.entries({ policy, hour, cell, show, window })) if (value !== null && value !== undefined) url.searchParams.set(name, value);
  return url.href.replaceAll("%3A", ":"); // a colon is allowed in a query
}

// The link to what the model shows: its policy, hour and kind, so that it stays there when the next hour comes. Of a
// running mean there is only the newest.
export function linkToShown(model, cell = model.selected) {
  if (model.kind === "running") return linkTo({ policy: model.policy, cell, show: "running", window: model.window.name });
  const isChoice = model.hasEstimates || model.kind !== model.hourKind;
  return linkTo({ policy: model.policy, hour: model.slot, cell, show: isChoice ? model.kind : null });
}

// A button that copies a link; where the browser does not let it, the link is shown to be copied by hand.
export function copyButton(words, makeLink, attributes = {}) {
  const note = element("input", { class: "link", type: "text", readonly: true, hidden: true, "aria-label": say`Link, to be copied` });
  const button = element("button", { type: "button", class: "plain", ...attributes, onclick: () => copy(makeLink()) }, words);
  async function copy(link) {
    try {
      await navigator.clipboard.writeText(link); // undefined without TLS, except on this machine
      note.hidden = true;
      setText(button, say`Link copied`);
      setText(byId("announcer"), say`Link copied`);
      setTimeout(() => setText(button, words), SHOWN_MS);
    } catch {
      note.hidden = false;
      note.value = link;
      note.focus();
      note.select();
    }
  }
  return [button, note];
}
