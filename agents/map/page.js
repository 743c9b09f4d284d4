// The server of a map that is one file: it answers what the page asks from what is in the page. The page's own scripts
// are those of the live map and follow it.

{
  const KINDS = { "": "releases", latest: "releases", estimates: "estimates", continual: "continual", running: "running", queries: "queries" };
  const ALIVE_MS = 15_000;

  const published = (async () => {
    const packed = Uint8Array.from(atob(document.getElementById("published").textContent), (each) => each.charCodeAt(0));
    const text = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
    const content = JSON.parse(text);
    for (const { records } of Object.values(content.policies)) {
      for (const [kind, texts] of Object.entries(records)) records[kind] = texts.map((each) => [each, JSON.parse(each)]);
    }
    return content;
  })();

  // Return the body of an answer of the API, or null if there is none.
  function bodyOf({ first, policies, others }, url) {
    const { pathname, searchParams } = new URL(url, "file:///");
    const path = pathname.replace(/^.*api\/v1\//, "");
    if (path in others) return others[path];
    const name = searchParams.get("policy") ?? first;
    const [, cell, asked] = /^cells\/(\w+)\/?(\w*)$/.exec(path) ?? ["", null, path];
    const kind = KINDS[asked];
    const records = policies[name]?.records[kind];
    if (records === undefined) return null;
    const slotOf = ({ date, slot }) => `${date}T${slot}`;
    const wanted = { cell, name: searchParams.get("name"), query: searchParams.get("query"), first_date: searchParams.get("period") };
    const isOfHours = asked in KINDS && cell === null && kind !== "running" && kind !== "queries";
    const slot = searchParams.get("slot") ?? (isOfHours && records.length > 0 ? slotOf(records.at(-1)[1]) : "");
    const found = records.filter(([, record]) => slotOf(record).endsWith(slot) && Object.entries(wanted).every(([field, value]) => value === null || record[field] === value));
    return `{"policy":${JSON.stringify(name)},"${kind}":[${found.map(([text]) => text)}]}`;
  }

  globalThis.fetch = async (url) => {
    const body = bodyOf(await published, url);
    return new Response(body ?? "", { status: body === null ? 404 : 200 });
  };

  globalThis.EventSource = class extends EventTarget {
    static CLOSED = 2;
    readyState = 1;
    #timer = 0;

    constructor(url) {
      super();
      this.#play(new URL(url, "file:///").searchParams.get("policy"));
    }

    async #play(policy) {
      const { first, policies } = await published;
      const name = policy in policies ? policy : first;
      const events = policies[name].events.matchAll(/^event: (.*)\ndata: (.*)$/gm);
      if (this.readyState === EventSource.CLOSED) return;
      for (const [, type, data] of events) this.dispatchEvent(new MessageEvent(type, { data }));
      const alive = () => this.dispatchEvent(new MessageEvent("alive", { data: JSON.stringify({ policy: name }) }));
      this.#timer = setInterval(alive, ALIVE_MS);
    }

    close() {
      this.readyState = EventSource.CLOSED;
      clearInterval(this.#timer);
    }
  };

  // What a server would send is saved as a file.
  document.addEventListener("click", async (event) => {
    const link = event.target.closest('a[href^="api/v1/"]');
    if (link === null) return;
    event.preventDefault();
    const body = await (await fetch(link.getAttribute("href"))).blob();
    const url = URL.createObjectURL(body);
    Object.assign(document.createElement("a"), { href: url, download: `${link.pathname.split("/").at(-1)}.json` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  });
}
