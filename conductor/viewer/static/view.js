// The page: loads the rows, and connects search and filters, timeline, diagram and panel.
import { beforeFrame, byId, element } from "./dom.js";
import { Diagram } from "./diagram.js";
import { KINDS, everything, visibleRows } from "./filter.js";
import { count, duration, printable } from "./format.js";
import { Panel } from "./panel.js";
import { Trace } from "./rows.js";
import { openSource } from "./sources.js";
import { Timeline } from "./timeline.js";

const SEARCH_DELAY = 150;
const RETRY = 1000;

class View {
  trace = new Trace();
  criteria = everything();
  #searching = 0;
  #wasWhole = false;
  #options = new Map();

  constructor(source) {
    this.source = source;
    const select = (row) => this.select(row);
    const seen = (first, last) => this.timeline?.setSeen(first, last);
    this.diagram = new Diagram(this.trace, byId("diagram"), (row) => this.panel.show(row), seen);
    this.panel = new Panel(this.trace, source, byId("panel"), select, () => this.close());
    const toTime = (seconds) => this.diagram.reveal(this.#rowAt(seconds));
    this.timeline = new Timeline(this.trace, byId("timeline"), select, toTime);
    this.update = beforeFrame(() => this.#update());
    this.#makeControls();
    document.addEventListener("keydown", (event) => this.#key(event));
  }

  /** Load all rows, and go on with what is added, until the source ends. */
  async load() {
    for (let isFirst = true; ; isFirst = false) {
      const known = this.trace.rows.length;
      const waits = !isFirst && known > 0 && this.state !== "loading";
      let page;
      try {
        page = await this.source.page(known, this.trace.strings.length, waits);
      } catch (error) {
        this.#setState(`ended: ${error.message}`, "ended");
        if (error instanceof TypeError) await this.#reconnected();
        else return;
        continue;
      }
      this.state = page.state;
      this.trace.add(page);
      document.title = `${page.name} · trace`;
      byId("title").textContent = printable(page.name);
      const isWhole = page.state !== "loading" && this.trace.rows.length >= page.total;
      if (page.rows.length || isFirst) this.update();
      this.#showState(page, isWhole);
      if (isWhole && page.rows.length) await this.#loadLinks();
      if (isWhole && (page.state === "complete" || page.error)) return;
      if (page.state === "loading" && !page.rows.length) await pause(50);
    }
  }

  #showState(page, isWhole) {
    if (!isWhole) this.#setState(`loading, ${this.trace.rows.length.toLocaleString("en")} records`, "loading");
    else if (page.error) this.#setState(page.error, "ended");
    else if (page.live) this.#setState("live", "live");
    else this.#setState(this.#wasWhole && page.rows.length ? "following" : "", "");
    this.#wasWhole ||= isWhole;
  }

  async #loadLinks() {
    try {
      this.trace.setLinks(await this.source.links());
      this.update();
    } catch {
      // the next block of rows asks again
    }
  }

  async #reconnected() {
    this.#setState("the conductor has ended; what was not opened before is only in a file of --trace", "ended");
    await pause(RETRY);
  }

  select(row) {
    this.diagram.select(row);
    if (row && matchMedia("(min-width: 900px)").matches) this.diagram.list.focus();
  }

  close() {
    this.diagram.select(null);
    this.panel.show(null);
    this.diagram.list.focus();
  }

  #update() {
    this.diagram.show(visibleRows(this.trace, this.criteria));
    this.timeline.update();
    this.#fillChoices();
    this.#summarize();
  }

  #filter() {
    this.diagram.show(visibleRows(this.trace, this.criteria));
    this.#summarize();
  }

  #makeControls() {
    const kinds = Object.entries(KINDS).map(([name, label]) => this.#toggle(label, this.criteria.shown.has(name), (isOn) => {
      if (isOn) this.criteria.shown.add(name);
      else this.criteria.shown.delete(name);
    }));
    const errors = this.#toggle("errors only", false, (isOn) => (this.criteria.errors = isOn));
    const changed = this.#toggle("± changed only", false, (isOn) => (this.criteria.changed = isOn));
    byId("kinds").append(...kinds, errors, changed);
    for (const name of ["session", "chain", "hop"]) {
      byId(name).addEventListener("change", (event) => {
        this.criteria[name] = Number(event.target.value);
        this.#filter();
      });
    }
    let timer;
    byId("search").addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.#search(byId("search").value), SEARCH_DELAY);
    });
    byId("help-button").addEventListener("click", () => byId("help").showModal());
  }

  #toggle(label, isOn, change) {
    const button = element("button", { type: "button", class: "chip", "aria-pressed": String(isOn) }, label);
    button.addEventListener("click", () => {
      const now = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(now));
      change(now);
      this.#filter();
    });
    return button;
  }

  /** Options of the selects for what the trace has by now. */
  #fillChoices() {
    const { trace } = this;
    const sessions = new Set();
    const chains = new Set();
    const hops = new Map();
    for (const row of trace.rows) {
      if (row.session >= 0) sessions.add(row.session);
      chains.add(row.chain);
      if (row.hop >= 0 && !hops.has(row.hop)) {
        const ends = [row.sender, row.receiver].sort((a, b) => trace.lane(a) - trace.lane(b));
        hops.set(row.hop, ends.map((each) => printable(trace.string(each))).join(", "));
      }
    }
    this.#fillSelect("session", "all sessions", [...sessions].map((each) => [each, printable(trace.string(each))]));
    this.#fillSelect("chain", "all chains", [...chains].map((each) => [each, printable(trace.string(each))]));
    this.#fillSelect("hop", "every hop", [...hops].sort(([a], [b]) => a - b));
  }

  #fillSelect(id, all, options) {
    const key = JSON.stringify(options);
    if (this.#options.get(id) === key) return;
    this.#options.set(id, key);
    const select = byId(id);
    select.replaceChildren(...[[-1, all], ...options].map(([value, text]) => element("option", { value }, text)));
    select.value = String(this.criteria[id]);
    select.parentElement.hidden = options.length < 2;
  }

  #summarize() {
    const { trace, diagram } = this;
    const seconds = trace.rows.at(-1)?.ts ?? 0;
    const parts = [
      diagram.shown === trace.rows.length
        ? count(trace.rows.length, "record")
        : `${diagram.shown.toLocaleString("en")} of ${count(trace.rows.length, "record")}`,
      duration(seconds),
      count(this.timeline.turns.length, "turn"),
    ];
    if (trace.errors) parts.push(count(trace.errors, "error"));
    parts.push(...usageTexts(trace, this.criteria.session));
    byId("summary").textContent = parts.join(" · ");
  }

  async #search(text) {
    const number = ++this.#searching;
    if (!text.trim()) {
      this.criteria.found = null;
      this.#filter();
      return;
    }
    const found = new Set();
    this.criteria.found = found;
    this.#filter();
    try {
      for await (const rows of this.source.search(text, this.trace.rows.length)) {
        if (number !== this.#searching) return;
        for (const each of rows) found.add(each);
        this.#filter();
      }
    } catch (error) {
      this.#setState(`the search failed: ${error.message}`, "ended");
    }
  }

  #rowAt(seconds) {
    const { rows } = this.trace;
    let low = 0;
    let high = rows.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (rows[middle].ts < seconds) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #key(event) {
    const isTyping = event.target.matches("input, select");
    if (event.ctrlKey || event.altKey || event.metaKey || byId("help").open) return;
    if (event.key === "Escape") this.#escape();
    else if (isTyping) {
      if (event.key === "Enter" || event.key === "ArrowDown") this.#toList();
      else return;
    } else if (!this.#command(event.key)) return;
    event.preventDefault();
  }

  #escape() {
    const search = byId("search");
    if (document.activeElement === search && search.value) {
      search.value = "";
      this.#search("");
    } else if (!byId("panel").hidden) this.close();
    else this.diagram.list.focus();
  }

  #toList() {
    this.diagram.list.focus();
    this.diagram.move(1);
  }

  /** Whether the key is a command; does it. */
  #command(key) {
    const { trace, diagram, panel } = this;
    const row = diagram.selected;
    const commands = {
      "/": () => byId("search").focus(),
      "?": () => byId("help").showModal(),
      j: () => diagram.move(1),
      k: () => diagram.move(-1),
      1: () => panel.turnTo("message"),
      2: () => panel.turnTo("changes"),
      3: () => panel.turnTo("way"),
      "[": () => this.#turn(-1),
      "]": () => this.#turn(1),
      ArrowLeft: () => row?.isMessage && this.select(trace.before(row) ?? trace.cause(row) ?? row),
      ArrowRight: () => row?.isMessage && this.select(trace.passedOn(row)[0] ?? row),
      r: () => row?.isMessage && this.select(trace.request(row) ?? trace.response(row) ?? row),
    };
    if (!Object.hasOwn(commands, key)) return false;
    commands[key]();
    return true;
  }

  /** The next or previous turn. */
  #turn(by) {
    const at = this.diagram.selected?.i ?? -1;
    const turns = this.timeline.turns.map((each) => each.row);
    const next = by > 0 ? turns.find((each) => each.i > at) : turns.findLast((each) => each.i < at);
    if (next) this.select(next);
  }

  #setState(text, name) {
    const state = byId("state");
    if (state.textContent !== text) state.textContent = text;
    state.className = name;
  }
}

/** Tokens, cost and context: of a session, or of all. */
function usageTexts(trace, session) {
  const name = session >= 0 ? trace.string(session) : null;
  const found = Object.entries(trace.usage).filter(([each]) => name === null || each === name);
  const texts = [];
  const tokens = found.reduce((sum, [, each]) => sum + (each.tokens.totalTokens ?? 0), 0);
  if (tokens) texts.push(count(tokens, "token"));
  const costs = new Map();
  for (const [, each] of found) {
    for (const [currency, amount] of Object.entries(each.cost)) costs.set(currency, (costs.get(currency) ?? 0) + amount);
  }
  for (const [currency, amount] of costs) texts.push(`${amount.toFixed(4)} ${printable(currency)}`);
  if (found.length === 1 && found[0][1].size) {
    const { used, size } = found[0][1];
    texts.push(`context ${(used ?? 0).toLocaleString("en")} of ${size.toLocaleString("en")}`);
  }
  return texts;
}

function pause(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

try {
  await new View(await openSource()).load();
} catch (error) {
  byId("state").textContent = error.message;
  byId("state").className = "ended";
}
