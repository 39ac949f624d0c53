// The panel beside the diagram: one record, what a component changed, its way through the hops.
import { element } from "./dom.js";
import { bytes, duration, parseJson, printable } from "./format.js";
import { diffLines, diffView } from "./json_diff.js";
import { jsonView } from "./json_view.js";
import { hopText, kindName, methodText } from "./diagram.js";
import { isDiverted } from "./rows.js";

const TABS = { message: "Message", changes: "Changes", way: "Way" };
const KEPT = 300;
const MOST_SENT = 20;

export class Panel {
  #row = null;
  #tab = "message";
  #records = new Map();

  /** `source` gives records; `onSelect` is called with a row, `onClose` without. */
  constructor(trace, source, root, onSelect, onClose) {
    this.trace = trace;
    this.source = source;
    this.root = root;
    this.onSelect = onSelect;
    this.title = element("h2", { id: "panel-title", tabindex: "-1" });
    this.facts = element("dl", { class: "facts" });
    this.tabs = element("div", { role: "tablist", "aria-label": "About this record" });
    this.body = element("div", { id: "panel-body", role: "tabpanel", tabindex: "0" });
    const close = element("button", { type: "button", class: "close", title: "Close (Esc)", onclick: onClose });
    close.append("×");
    close.setAttribute("aria-label", "Close");
    root.append(element("div", { class: "panel-head" }, this.title, close), this.facts, this.tabs, this.body);
    this.tabs.addEventListener("keydown", (event) => this.#tabKey(event));
    root.hidden = true;
  }

  show(row) {
    this.#row = row;
    this.root.hidden = !row;
    document.body.classList.toggle("panel-open", Boolean(row));
    if (!row) return;
    const { trace } = this;
    const number = row.n ? `#${row.n} ` : "";
    this.title.textContent = `${number}${methodText(trace, row)}`;
    this.facts.replaceChildren(...this.#facts(row));
    const names = Object.keys(TABS).filter((name) => row.isMessage || name === "message");
    if (!names.includes(this.#tab)) this.#tab = "message";
    this.tabs.replaceChildren(...names.map((name) => this.#tabButton(name)));
    this.#fill();
  }

  /** Show another tab: "message", "changes" or "way". */
  turnTo(name) {
    if (!this.#row?.isMessage) return;
    this.#tab = name;
    this.show(this.#row);
  }

  #tabButton(name) {
    const isOn = name === this.#tab;
    return element("button", {
      type: "button", role: "tab", id: `tab-${name}`, "aria-selected": String(isOn),
      "aria-controls": "panel-body", tabindex: isOn ? "0" : "-1",
      onclick: () => this.turnTo(name),
    }, TABS[name]);
  }

  #tabKey(event) {
    const names = Object.keys(TABS);
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const next = names[(names.indexOf(this.#tab) + by + names.length) % names.length];
    this.turnTo(next);
    this.tabs.querySelector("[aria-selected=true]").focus();
  }

  #facts(row) {
    const { trace } = this;
    const facts = [["", `${kindName(row)}, ${hopText(trace, row)}`]];
    facts.push(["at", `${row.ts.toFixed(6)} s`]);
    if (row.session >= 0) facts.push(["session", printable(trace.string(row.session))]);
    if (row.size) facts.push(["size", bytes(row.size)]);
    const request = trace.request(row);
    const since = request && duration(row.ts - request.ts);
    if (request) facts.push([row.type === "r" ? "request" : "cancels", [this.#link(request), ` after ${since}`]]);
    const response = row.type === "q" && trace.response(row);
    if (response) facts.push(["answer", [this.#link(response), ` after ${duration(response.took)}`]]);
    else if (row.type === "q") facts.push(["answer", "none in this trace"]);
    const about = !row.isMessage && row.ref && trace.message(row.ref);
    if (about) facts.push(["message", this.#link(about)]);
    if (row.type === "h") facts.push(["took", `${duration(row.took)}, waited ${duration(row.extra.waited)}`]);
    const { tokens, stop } = row.extra ?? {};
    if (stop) facts.push(["turn ended", printable(stop)]);
    if (tokens) facts.push(["tokens", tokens.toLocaleString("en")]);
    return facts.map(([name, value]) => element("div", {}, name && element("dt", {}, name), element("dd", {}, value)));
  }

  #link(row, text = `#${row.n}`) {
    return element("button", { type: "button", class: "link", onclick: () => this.onSelect(row) }, text);
  }

  async #fill() {
    const row = this.#row;
    const isCurrent = () => row === this.#row;
    const tab = this.#tab;
    this.body.setAttribute("aria-labelledby", `tab-${tab}`);
    let content;
    try {
      if (tab === "message") content = await this.#message(row);
      else content = tab === "changes" ? await this.#changes(row) : this.#way(row);
    } catch (error) {
      content = [element("p", { class: "problem" }, `The record cannot be read: ${error.message}`)];
    }
    if (isCurrent() && tab === this.#tab) {
      this.body.replaceChildren(...content);
      this.body.scrollTop = 0;
    }
  }

  async #record(row) {
    let found = this.#records.get(row.i);
    if (!found) {
      found = parseJson(await this.source.record(row.i));
      this.#records.set(row.i, found);
      if (this.#records.size > KEPT) this.#records.delete(this.#records.keys().next().value);
    }
    return found;
  }

  async #payload(row) {
    const record = await this.#record(row);
    return row.type === "r" ? record.payload : record.params;
  }

  async #message(row) {
    const record = await this.#record(row);
    if (!row.isMessage) return [jsonView(record)];
    const { params, payload, head, ...rest } = record;
    const value = row.type === "r" ? payload : params;
    const copy = element("button", { type: "button", class: "copy" }, "copy");
    copy.addEventListener("click", () => {
      navigator.clipboard?.writeText(JSON.stringify(value, null, 2)).then(() => (copy.textContent = "copied"));
    });
    const name = row.type === "q" || row.type === "n" ? "params" : row.isError ? "error" : "result";
    const whole = head
      ? [element("p", { class: "note" }, `The payload of ${bytes(row.size)} is not in the trace; its beginning:`),
        element("pre", {}, printable(head, true))]
      : [jsonView(value ?? null)];
    const masked = record.masked && element("p", { class: "note" }, "Secrets were replaced by ***.");
    const others = element("details", { class: "rest" }, element("summary", {}, "the rest of the record"), jsonView(rest));
    return [element("h3", {}, name, copy), masked, ...whole, others].filter(Boolean);
  }

  async #changes(row) {
    const { trace } = this;
    const before = trace.before(row);
    if (before) return [this.#passedOn(before, row), await this.#difference(before, row)];
    const cause = trace.cause(row);
    const sender = printable(trace.string(row.sender));
    if (row.type === "r" && (!cause || cause === trace.request(row))) {
      return [element("p", {}, `${sender} answered the request itself.`)];
    }
    if (!cause) return [element("p", {}, `${sender} made this message: none that it received is its cause.`)];
    const text = ` ${methodText(trace, cause)} ${printable(cause.text)}`;
    return [element("p", {}, `${sender} made this message while it handled `, this.#link(cause), text)];
  }

  #passedOn(before, row) {
    if (isDiverted(before, row)) {
      const inserted = printable(this.trace.string(row.receiver));
      return element("p", {}, `${inserted} was inserted for `, this.#link(before), ", and gets it instead");
    }
    const after = duration(Math.max(row.ts - before.ts, 0));
    const how = this.trace.inference(row);
    const sender = printable(this.trace.string(row.sender));
    const inferred = how && element("span", { class: "note" }, ` (link inferred: ${how})`);
    return element("p", {}, `${sender} got `, this.#link(before), ` and sent `, this.#link(row), ` ${after} later`, inferred);
  }

  async #difference(before, row) {
    const [old, now] = await Promise.all([this.#payload(before), this.#payload(row)]);
    if (old === null && now === null && before.size) {
      const same = before.size === row.size ? "of the same size" : `of ${bytes(row.size)} instead of ${bytes(before.size)}`;
      return element("p", { class: "note" }, `The payloads are not in the trace; it is ${same}.`);
    }
    const edits = diffLines(old, now);
    return edits.length ? diffView(edits) : element("p", { class: "unchanged" }, "unchanged");
  }

  #way(row) {
    const { trace } = this;
    const start = trace.request(row) ?? row;
    const way = trace.way(start);
    const parts = [element("h3", {}, kindName(start)), this.#steps(way, row)];
    for (const answer of start.type === "q" ? trace.answers(way) : []) {
      parts.push(element("h3", {}, kindName(answer)), this.#steps(trace.way(answer), row));
    }
    const cause = trace.cause(way[0]);
    if (cause && cause !== trace.request(way[0])) {
      const text = ` ${methodText(trace, cause)}`;
      const from = `sent by ${printable(trace.string(way[0].sender))} while it handled `;
      parts.unshift(element("p", { class: "note" }, from, this.#link(cause), text));
    }
    return parts;
  }

  #steps(way, selected) {
    const list = element("ol", { class: "way" });
    for (const [at, row] of way.entries()) {
      const before = at > 0 ? this.trace.before(row) : undefined;
      const item = element("li", { class: row === selected ? "current" : "" });
      if (before) item.append(element("div", { class: "step" }, this.#stepText(before, row)));
      item.append(element("div", { class: "hop" }, this.#link(row), ` ${hopText(this.trace, row)} `,
        element("span", { class: "note" }, `${row.ts.toFixed(3)} s`)));
      for (const each of this.trace.attached(row)) item.append(this.#attached(each));
      const sent = this.trace.alsoSent(row);
      for (const each of sent.slice(0, MOST_SENT)) {
        const text = ` ${methodText(this.trace, each)} ${printable(each.text)}`;
        item.append(element("div", { class: "sent" }, "sent ", this.#link(each), text));
      }
      if (sent.length > MOST_SENT) item.append(element("div", { class: "sent" }, `and ${sent.length - MOST_SENT} more`));
      list.append(item);
    }
    return list;
  }

  #stepText(before, row) {
    const sender = printable(this.trace.string(row.sender));
    const after = duration(Math.max(row.ts - before.ts, 0));
    const what = row.isChanged
      ? element("button", { type: "button", class: "link changed", onclick: () => this.#showChanges(row) }, "changed")
      : "unchanged";
    const how = this.trace.inference(row);
    if (isDiverted(before, row)) return [`${printable(this.trace.string(row.receiver))} was inserted for it, and gets it instead`];
    return [`${sender}: passed on after ${after}, `, what, how && element("span", { class: "note" }, ` (inferred: ${how})`)];
  }

  #showChanges(row) {
    this.#tab = "changes";
    this.onSelect(row);
  }

  #attached(row) {
    const took = row.type === "h" ? `, took ${duration(row.took)}, waited ${duration(row.extra.waited)}` : "";
    const text = `${printable(this.trace.string(row.sender))}: ${printable(row.text)}${took}`;
    return element("div", { class: `about ${kindName(row)}${row.isError ? " error" : ""}` }, text);
  }
}
