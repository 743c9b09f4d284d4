// The catalogue: every text of the page is a template of say, in English, and comes back in the reader's language. The
// text about ${speed} ${unit} has the entry "about {1} {2}". A text without an entry stays English.

import { GERMAN } from "./german.js";

const CATALOGUES = { de: GERMAN };
const wanted = new URLSearchParams(location.search).get("lang") ?? navigator.language;
export const LANGUAGE = Object.keys(CATALOGUES).find((each) => wanted.toLowerCase().startsWith(each)) ?? "en";
const catalogue = new Map(Object.entries(CATALOGUES[LANGUAGE] ?? {}));

const inLanguage = (english) => catalogue.get(english) ?? english;

export function say(parts, ...values) {
  const english = parts.reduce((text, part, at) => `${text}{${at}}${part}`);
  return inLanguage(english).replace(/\{(\d)\}/g, (_, at) => values[at - 1]);
}

// The texts that the page itself has, once at its start.
export function sayPage() {
  document.documentElement.lang = LANGUAGE;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const nodes = [];
  while (walker.nextNode()) if (walker.currentNode.parentElement.localName !== "script") nodes.push(walker.currentNode);
  for (const node of nodes) node.data = node.data.replace(node.data.trim(), inLanguage);
  // A title that was not chosen has the policy's name before its words.
  const heading = document.querySelector("h1");
  const [, name] = /^(.*): bus speeds, hour by hour$/.exec(heading.textContent) ?? [];
  if (name !== undefined) document.title = heading.textContent = say`${name}: bus speeds, hour by hour`;
  for (const node of document.querySelectorAll("[aria-label], [placeholder]")) {
    for (const name of ["aria-label", "placeholder"]) if (node.hasAttribute(name)) node.setAttribute(name, inLanguage(node.getAttribute(name)));
  }
}
