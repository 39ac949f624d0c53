// The sequence diagram: a lane for each component, a line for each message. Only the rows that are
// seen are in the document; they are used again while scrolling.
import { beforeFrame, element } from "./dom.js";
import { bytes, duration, printable } from "./format.js";
import { isDiverted } from "./rows.js";

/** Pixels of a row, and left of the lanes. */
const HEIGHT = 26;
const GUTTER = 116;
const BLOCK = 128;
const MOST_SPANS = 40;
const EXTRA = 4;
const COLOURS = 8;

export class Diagram {
  #visible = new Int32Array(0);
  #places = new Map();
  #pool = [];
  #spans = [];
  #spanPool = [];
  #related = new Set();
  #selected = -1;
  #gap = 0;

  /** `onSelect` is called with a row; `onScroll` with the rows that are seen. */
  constructor(trace, root, onSelect, onScroll) {
    this.trace = trace;
    this.root = root;
    this.onSelect = onSelect;
    this.onScroll = onScroll;
    this.heads = element("div", { class: "heads", "aria-hidden": "true" });
    this.lines = element("div", { class: "lifelines", "aria-hidden": "true" });
    this.canvas = element("div", { class: "canvas", role: "presentation" });
    this.list = element("div", {
      class: "list", role: "listbox", tabindex: "0", "aria-label": "Messages",
    }, this.canvas);
    root.append(this.heads, this.lines, this.list);
    const draw = beforeFrame(() => this.draw());
    this.list.addEventListener("scroll", draw, { passive: true });
    this.list.addEventListener("click", (event) => this.#clicked(event));
    this.list.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => {
      this.layout();
      this.#revealSelected();
    }).observe(root);
  }

  get selected() {
    return this.trace.rows[this.#selected];
  }

  get shown() {
    return this.#visible.length;
  }

  /** Show these rows. The scroll position is kept, or the end if it was seen. */
  show(visible) {
    const follows = this.#isAtEnd && this.#visible.length > 0;
    const top = this.#visible[this.#first()];
    this.#visible = visible;
    this.#places = new Map();
    visible.forEach((i, place) => this.#places.set(i, place));
    this.#findSpans();
    this.layout();
    if (follows) this.list.scrollTop = this.list.scrollHeight;
    else if (top !== undefined) this.#scrollTo(nearest(visible, top));
    this.draw(true);
  }

  get #isAtEnd() {
    return this.list.scrollTop + this.list.clientHeight >= this.list.scrollHeight - 4;
  }

  /** Select a row, and scroll to it if it is not seen. */
  select(row) {
    this.#selected = row ? row.i : -1;
    this.#related = new Set(row?.isMessage ? this.trace.way(row).map((each) => each.i) : []);
    const place = row ? this.#places.get(row.i) : undefined;
    if (place !== undefined) this.#reveal(place);
    this.draw(true);
    if (place !== undefined) this.list.setAttribute("aria-activedescendant", `row-${row.i}`);
    else this.list.removeAttribute("aria-activedescendant");
    if (row) this.onSelect(row);
  }

  /** Scroll to the row that is nearest to a row. */
  reveal(i) {
    this.#scrollTo(nearest(this.#visible, i));
    this.draw(true);
  }

  /** Select the row that is some places further. */
  move(by) {
    if (!this.#visible.length) return;
    const known = this.#places.get(this.#selected);
    const from = known ?? (by > 0 ? this.#first() - 1 : this.#first() + 1);
    const place = Math.min(Math.max(from + by, 0), this.#visible.length - 1);
    this.select(this.trace.rows[this.#visible[place]]);
  }

  /** Measure, and draw everything anew. */
  layout() {
    const width = this.root.clientWidth;
    const names = this.trace.lanes;
    const room = (width - GUTTER - (width < 900 ? 270 : 360)) / Math.max(names.length, 1);
    const gap = Math.max(40, Math.min(room, 132));
    this.#gap = gap;
    this.root.classList.toggle("steep", gap < 84);
    this.root.classList.toggle("tight", width - GUTTER - gap * names.length < 420);
    this.root.style.setProperty("--gap", `${gap}px`);
    this.root.style.setProperty("--label", `${GUTTER + gap * names.length + 6}px`);
    this.root.style.setProperty("--row", `${HEIGHT}px`);
    const centre = (at) => `${GUTTER + (at + 0.5) * gap}px`;
    const head = (name, at) => {
      const made = element("div", { class: `head lane-${at % COLOURS}`, title: printable(name) });
      made.append(element("span", {}, printable(name)));
      made.style.left = centre(at);
      return made;
    };
    const line = (_, at) => {
      const made = element("div", { class: `lifeline lane-${at % COLOURS}` });
      made.style.left = centre(at);
      return made;
    };
    this.heads.replaceChildren(...names.map(head));
    this.lines.replaceChildren(...names.map(line));
    this.canvas.style.height = `${this.#visible.length * HEIGHT}px`;
    this.draw(true);
  }

  #first() {
    return Math.floor(this.list.scrollTop / HEIGHT);
  }

  #scrollTo(place) {
    this.list.scrollTop = place * HEIGHT;
  }

  #revealSelected() {
    const place = this.#places.get(this.#selected);
    if (place !== undefined) this.#reveal(place);
  }

  #reveal(place) {
    const top = this.list.scrollTop;
    const bottom = top + this.list.clientHeight - HEIGHT;
    if (place * HEIGHT >= top && place * HEIGHT <= bottom) return;
    this.#scrollTo(Math.max(0, place - Math.floor(this.list.clientHeight / HEIGHT / 2)));
  }

  /** Bring the document up to date with the scroll position. */
  draw(isAnew = false) {
    if (!this.#gap) return;
    const first = Math.max(0, this.#first() - EXTRA);
    const seen = Math.ceil(this.list.clientHeight / HEIGHT) + 2 * EXTRA;
    const last = Math.min(this.#visible.length, first + seen);
    this.#fillPool(seen);
    for (const each of this.#pool) {
      if (each.place < first || each.place >= last) hide(each);
    }
    for (let place = first; place < last; place += 1) {
      const holder = this.#pool[place % this.#pool.length];
      if (isAnew || holder.place !== place) this.#fill(holder, place);
      holder.row.style.transform = `translateY(${place * HEIGHT}px)`;
    }
    this.#drawSpans(first, last);
    this.onScroll(this.#visible[first], this.#visible[Math.max(last - 1, 0)]);
  }

  #fillPool(size) {
    if (this.#pool.length >= size) return;
    for (const each of this.#pool) each.row.remove();
    this.#pool = Array.from({ length: size }, () => newHolder());
    this.canvas.append(...this.#pool.map((each) => each.row));
  }

  #fill(holder, place) {
    const { trace } = this;
    const row = trace.rows[this.#visible[place]];
    holder.place = place;
    const isSelected = row.i === this.#selected;
    holder.row.hidden = false;
    holder.row.id = `row-${row.i}`;
    holder.row.className = `row ${rowClass(row)}${isSelected ? " selected" : ""}`;
    if (this.#related.has(row.i)) holder.row.classList.add("related");
    holder.row.setAttribute("aria-selected", String(isSelected));
    holder.row.setAttribute("aria-posinset", String(place + 1));
    holder.row.setAttribute("aria-setsize", String(this.#visible.length));
    holder.time.textContent = row.ts.toFixed(row.ts < 10_000 ? 3 : 1);
    holder.number.textContent = row.n || "";
    holder.change.hidden = !row.isChanged;
    holder.method.textContent = methodText(trace, row);
    holder.text.textContent = printable(row.text);
    holder.size.textContent = row.size ? bytes(row.size) : "";
    holder.took.textContent = row.took && (row.type === "r" || row.type === "h") ? duration(row.took) : "";
    this.#placeArrow(holder.arrow, row);
    const kind = row.isChanged ? `changed ${kindName(row)}` : kindName(row);
    const label = `${kind} ${row.n ? `#${row.n}` : ""}, ${hopText(trace, row)}, `;
    holder.row.setAttribute("aria-label", `${label}${holder.method.textContent} ${holder.text.textContent}`);
  }

  #placeArrow(arrow, row) {
    const gap = this.#gap;
    const from = this.trace.lane(row.sender);
    const to = this.trace.lane(row.receiver);
    arrow.hidden = from < 0;
    if (from < 0) return;
    const left = GUTTER + (Math.min(from, to < 0 ? from : to) + 0.5) * gap;
    arrow.style.left = `${left}px`;
    arrow.style.width = to < 0 ? "0" : `${Math.abs(to - from) * gap}px`;
    arrow.className = `arrow ${to < 0 ? "dot" : to > from ? "right" : "left"}`;
  }

  /** Requests with their answers, as spans of places on the receiver's lane, found by block. */
  #findSpans() {
    const open = new Map();
    const used = new Map();
    const blocks = [];
    const all = [];
    this.#visible.forEach((i, place) => {
      const row = this.trace.rows[i];
      if (row.type === "q") {
        this.#endDiverted(row, open, used);
        const depths = used.get(row.receiver) ?? used.set(row.receiver, []).get(row.receiver);
        let depth = depths.indexOf(false);
        if (depth < 0) depth = depths.length;
        depths[depth] = true;
        const span = { row, start: place, end: -1, depth };
        open.set(row.n, span);
        all.push(span);
      } else if (row.type === "r" && open.has(row.ref)) {
        const span = open.get(row.ref);
        span.end = place;
        span.isError = row.isError;
        used.get(span.row.receiver)[span.depth] = false;
        open.delete(row.ref);
      }
    });
    for (const span of all) {
      span.isOpen = span.end < 0;
      if (span.isOpen) span.end = this.#visible.length - 1;
      for (let block = span.start >> 7; block <= span.end >> 7; block += 1) {
        const known = (blocks[block] ??= []);
        if (known.length < MOST_SPANS) known.push(span);
      }
    }
    this.#spans = blocks;
  }

  /** The component behind does not get a request for which another one is inserted. */
  #endDiverted(row, open, used) {
    const before = this.trace.before(row);
    const span = before && isDiverted(before, row) && open.get(before.n);
    if (!span) return;
    span.end = span.start;
    used.get(before.receiver)[span.depth] = false;
    open.delete(before.n);
  }

  #drawSpans(first, last) {
    const gap = this.#gap;
    const seen = new Set();
    for (let block = Math.floor(first / BLOCK); block <= Math.floor(last / BLOCK); block += 1) {
      for (const each of this.#spans[block] ?? []) {
        if (each.start <= last && each.end >= first) seen.add(each);
      }
    }
    let used = 0;
    for (const span of seen) {
      const bar = (this.#spanPool[used] ??= this.canvas.appendChild(element("div", { "aria-hidden": "true" })));
      used += 1;
      const lane = this.trace.lane(span.row.receiver);
      const top = Math.max(span.start, first - 1) * HEIGHT + HEIGHT / 2;
      const bottom = Math.min(span.end, last + 1) * HEIGHT + HEIGHT / 2;
      const step = Math.min(5, gap / 8);
      const left = GUTTER + (lane + 0.5) * gap - 3 + Math.min(span.depth, 4) * step;
      bar.hidden = false;
      bar.className = `span lane-${lane % COLOURS}`;
      bar.classList.toggle("open", span.isOpen);
      bar.classList.toggle("error", Boolean(span.isError));
      bar.classList.toggle("related", this.#related.has(span.row.i));
      bar.style.transform = `translate(${left}px, ${top}px)`;
      bar.style.height = `${Math.max(bottom - top, 2)}px`;
      bar.dataset.row = span.row.i;
    }
    for (let i = used; i < this.#spanPool.length; i += 1) this.#spanPool[i].hidden = true;
  }

  #clicked(event) {
    const bar = event.target.closest(".span");
    const found = this.#pool.find((each) => each.row.contains(event.target));
    const i = bar ? Number(bar.dataset.row) : this.#visible[found?.place];
    if (i !== undefined) this.select(this.trace.rows[i]);
  }

  #key(event) {
    const page = Math.max(1, Math.floor(this.list.clientHeight / HEIGHT) - 2);
    const all = this.#visible.length;
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -all, End: all };
    if (!(event.key in by) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    this.move(by[event.key]);
  }
}

function newHolder() {
  const make = (name) => element("span", { class: name });
  const holder = { place: -1 };
  for (const name of ["time", "number", "change", "method", "text", "size", "took", "arrow"]) {
    holder[name] = make(name);
  }
  holder.change.textContent = "± ";
  const label = element("span", { class: "label" }, holder.change, holder.method, " ", holder.text);
  holder.row = element("div", { role: "option", class: "row" },
    holder.time, holder.number, holder.arrow, label, holder.took, holder.size);
  holder.row.hidden = true;
  return holder;
}

function hide(holder) {
  holder.place = -1;
  holder.row.hidden = true;
}

function nearest(visible, i) {
  let low = 0;
  let high = visible.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (visible[middle] < i) low = middle + 1;
    else high = middle;
  }
  return low;
}

const NAMES = {
  q: "request", n: "notification", r: "answer", h: "handler", l: "log", s: "stderr", x: "lost", t: "chain",
};

export function kindName(row) {
  return row.type === "r" && row.isError ? "error" : NAMES[row.type];
}

function rowClass(row) {
  const level = row.type === "l" && row.extra?.level === "warning" ? " warning" : "";
  return `${kindName(row)}${row.isError ? " error" : ""}${row.isMcp ? " mcp" : ""}${level}`;
}

/** The method; of an answer, that of its request. */
export function methodText(trace, row) {
  if (!row.isMessage) return row.type === "h" ? `handler ${trace.string(row.method)}` : kindName(row);
  const count = row.extra?.count ? ` ×${row.extra.count}` : "";
  return printable(trace.string(row.method)) + count;
}

/** Sender and receiver. */
export function hopText(trace, row) {
  const sender = printable(trace.string(row.sender));
  return row.receiver < 0 ? sender : `${sender} → ${printable(trace.string(row.receiver))}`;
}
