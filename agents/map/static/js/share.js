// The menu Share: a link to what is shown, and its records and picture as files.

import { byId, element, setText } from "./dom.js";
import { copyButton, linkToShown } from "./links.js";
import { picture } from "./picture.js";
import { say } from "./words.js";

const HINTS = {
  releases: say`Download this hour's releases as published:`,
  estimates: say`Download this hour's estimates as published:`,
  running: say`Download these running means as published:`,
  continual: say`Download this hour's releases as published:`,
};
const PATHS = { releases: "latest", estimates: "estimates", running: "running", continual: "continual" };

export class Share {
  #model;
  #menu;
  #showMap;
  #files;

  // showMap: shows the map in place of the table
  constructor(model, menu, showMap) {
    this.#model = model;
    this.#menu = menu;
    this.#showMap = showMap;
    this.#files = { csv: element("a", { id: "save-csv" }, say`Table, CSV`), geojson: element("a", { id: "save-geojson" }, say`Hexagons, GeoJSON`) };
    const png = element("button", { type: "button", class: "plain", id: "save-png", onclick: () => this.#savePicture() }, say`Picture of the map, PNG`);
    const items = [...copyButton(say`Copy a link to this view`, () => linkToShown(model), { id: "copy-link" }), element("p", { class: "hint", id: "share-hint" }), this.#files.csv, this.#files.geojson, png];
    menu.append(element("div", { class: "items" }, ...items));
    document.addEventListener("click", (event) => {
      if (!menu.contains(event.target)) menu.open = false;
    });
    menu.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !menu.open) return;
      menu.open = false;
      menu.querySelector("summary").focus();
      event.stopPropagation(); // it does not close the hexagon, too
    });
  }

  draw() {
    const { shown, policy, kind, window } = this.#model;
    this.#menu.hidden = shown === null;
    if (shown === null) return;
    setText(byId("share-hint"), HINTS[kind]);
    for (const [format, link] of Object.entries(this.#files)) {
      const which = kind === "running" ? { name: window.name } : { slot: shown.slot };
      const href = `api/v1/${PATHS[kind]}?${new URLSearchParams({ policy, ...which, format })}`;
      if (link.getAttribute("href") !== href) link.setAttribute("href", href);
      link.setAttribute("download", this.#name(format));
    }
  }

  #name(ending) {
    const { shown, policy, kind, window, selected } = this.#model;
    const hour = shown.slot.replace(":", "-"); // a colon is not allowed in every file's name
    return `hatcast_${policy}_${hour}_${kind}${kind === "running" ? `_${window.name}` : ""}${ending === "png" && selected !== null ? `_${selected}` : ""}.${ending}`;
  }

  #savePicture() {
    this.#showMap();
    const name = this.#name("png");
    requestAnimationFrame(() => requestAnimationFrame(async () => {
      await Promise.allSettled(document.getAnimations().map(({ finished }) => finished)); // colours change over a quarter of a second
      picture(this.#model).toBlob((blob) => save(blob, name), "image/png");
    }));
  }
}

function save(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = element("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
