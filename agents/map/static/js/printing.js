// Fits the map to the page of paper while the page is printed.

import { byId } from "./dom.js";

const PAPER = "printing";

export function fitToPaper(map) {
  let before = null;
  const begin = () => {
    if (before !== null) return;
    before = map.bounds();
    document.documentElement.classList.add(PAPER); // print.css has its size
    byId("for-experts").open = true;
    map.show(before);
  };
  const end = () => {
    if (before === null) return;
    document.documentElement.classList.remove(PAPER);
    map.show(before);
    before = null;
  };
  addEventListener("beforeprint", begin);
  addEventListener("afterprint", end);
}
