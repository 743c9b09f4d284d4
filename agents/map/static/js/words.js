// The catalogue: every text of the page passes through here, in English, and comes back in the reader's language. An
// entry may have places, {1}, {2}, .. for what changes. A text without an entry stays English.

import { GERMAN } from "./german.js";

const CATALOGUES = { de: GERMAN };
const wanted = new URLSearchParams(location.search).get("lang") ?? navigator.language;
export const LANGUAGE = Object.keys(CATALOGUES).find((each) => wanted.toLowerCase().startsWith(each)) ?? "en";

const exact = new Map();
const patterns = [];
for (const [english, text] of Object.entries(CATALOGUES[LANGUAGE] ?? {})) {
  if (!english.includes("{1}")) exact.set(english, text);
  else patterns.push([new RegExp(`^${english.replace(/[.*+?^$()|[\]\\/]/g, "\\$&").replace(/\{\d\}/g, "(.*?)")}$`), text]);
}

export function say(text) {
  if (LANGUAGE === "en" || typeof text !== "string" || text.trim() === "") return text;
  const bare = text.trim();
  return text.replace(bare, () => exact.get(bare) ?? fromPattern(bare) ?? bare);
}

function fromPattern(text) {
  for (const [pattern, translated] of patterns) {
    const found = pattern.exec(text);
    if (found !== null) return translated.replace(/\{(\d)\}/g, (_, at) => say(found[at]));
  }
  return undefined;
}

// The texts that the page itself has, once at its start.
export function sayPage() {
  document.documentElement.lang = LANGUAGE;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const nodes = [];
  while (walker.nextNode()) if (walker.currentNode.parentElement.localName !== "script") nodes.push(walker.currentNode);
  for (const node of nodes) node.data = say(node.data);
  for (const node of document.querySelectorAll("[aria-label], [placeholder]")) {
    for (const name of ["aria-label", "placeholder"]) if (node.hasAttribute(name)) node.setAttribute(name, say(node.getAttribute(name)));
  }
}
