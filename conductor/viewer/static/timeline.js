// The timeline: turns, tool calls and errors over time, above the diagram.
import { element } from "./dom.js";
import { count, duration, printable } from "./format.js";

const TURN_TRACKS = 3;
const TOOL_TRACKS = 2;
const MOST_BARS = 1500;
const TRACK = 20;

export class Timeline {
  #turns = { turns: [], tools: [], seconds: 0 };
  #bars = new Map();

  /** `onSelect` is called with a row, `onTime` with seconds. */
  constructor(trace, root, onSelect, onTime) {
    this.trace = trace;
    this.root = root;
    this.onSelect = onSelect;
    this.seen = element("div", { class: "seen", "aria-hidden": "true" });
    this.tracks = element("div", { class: "tracks" });
    this.axis = element("div", { class: "axis", "aria-hidden": "true" });
    root.append(this.tracks, this.axis, this.seen);
    root.addEventListener("click", (event) => {
      if (event.target.closest("button")) return;
      const { left, width } = root.getBoundingClientRect();
      onTime(((event.clientX - left) / width) * this.#seconds);
    });
    new ResizeObserver(() => this.#draw()).observe(root);
  }

  get turns() {
    return this.#turns.turns;
  }

  update() {
    this.#turns = findTurns(this.trace);
    this.#draw();
  }

  /** Mark the time that the diagram shows. */
  setSeen(first, last) {
    const start = this.trace.rows[first]?.ts ?? 0;
    const end = this.trace.rows[last]?.ts ?? start;
    this.seen.style.left = `${(start / this.#seconds) * 100}%`;
    this.seen.style.width = `${Math.max(((end - start) / this.#seconds) * 100, 0.2)}%`;
  }

  get #seconds() {
    return Math.max(this.#turns.seconds, 1e-6);
  }

  #draw() {
    const { turns, tools } = this.#turns;
    const width = this.root.clientWidth;
    const tracks = [...packed(turns, TURN_TRACKS), ...packed(tools, TOOL_TRACKS)];
    const bars = tracks.flatMap((spans, at) => this.#merged(spans, width).map((each) => [each, at]));
    const known = this.#bars;
    this.#bars = new Map();
    this.#place(bars.slice(0, MOST_BARS).map(([bar, at]) => this.#bar(known, bar, at, width)));
    this.tracks.style.height = `${Math.max(tracks.length, 1) * TRACK}px`;
    this.axis.replaceChildren(...this.#ticks(width));
    this.root.classList.toggle("empty", !turns.length && !tools.length);
  }

  /** Spans of one track; those that would be thinner than a pixel become one. */
  #merged(spans, width) {
    const scale = width / this.#seconds;
    const found = [];
    for (const span of spans) {
      const last = found.at(-1);
      const isThin = (span.end - span.start) * scale < 3;
      if (last?.isThin && isThin && (span.start - last.end) * scale < 1) {
        last.end = span.end;
        last.number += 1;
        last.isError ||= span.isError;
      } else {
        found.push({ span, start: span.start, end: span.end, number: 1, isThin, isError: span.isError });
      }
    }
    return found;
  }

  /** Show these buttons. Those that stay are not taken out of the document, not even for a moment:
   * they would lose the focus, and a click whose press came before. */
  #place(bars) {
    const kept = new Set(bars);
    for (const each of [...this.tracks.children]) if (!kept.has(each)) each.remove();
    let next = this.tracks.firstChild;
    for (const bar of bars) {
      if (bar === next) next = next.nextSibling;
      else this.tracks.insertBefore(bar, next);
    }
  }

  /** The button of a span, from the known ones if it is there. */
  #bar(known, { span, start, end, number, isError }, at, width) {
    const text = number > 1 ? count(number, span.kind === "turn" ? "turn" : "tool call") : this.#text(span);
    const key = `${span.kind} ${span.row.i}`;
    const bar = known.get(key) ?? element("button", { type: "button" });
    this.#bars.set(key, bar);
    bar.onclick = () => this.onSelect(span.row);
    bar.className = `bar ${span.kind}${isError ? " error" : ""}`;
    bar.title = text;
    bar.setAttribute("aria-label", text);
    bar.style.left = `${(start / this.#seconds) * 100}%`;
    bar.style.width = `max(3px, ${((end - start) / this.#seconds) * 100}%)`;
    bar.style.top = `${at * TRACK}px`;
    const isWide = ((end - start) / this.#seconds) * width > 40;
    const label = isWide ? (number > 1 ? text : printable(span.text)) : "";
    if (bar.textContent !== label) bar.textContent = label;
    return bar;
  }

  #text(span) {
    const took = duration(Math.max(span.end - span.start, 0));
    const what = printable(span.text);
    if (span.kind === "tool") return `tool call ${what}, ${span.status ?? "not ended"}, ${took}`;
    const { stop, tokens } = span.response?.extra ?? {};
    const end = span.response ? (stop || "error") : "not ended";
    const used = tokens ? `, ${count(tokens, "token")}` : "";
    return `turn #${span.row.n} ${what}: ${took}, ${count(span.tools, "tool call")}${used}, ${printable(end)}`;
  }

  #ticks(width) {
    const step = roundStep(this.#seconds / Math.max(width / 110, 1));
    const ticks = [];
    for (let time = 0; time < this.#seconds * (1 - 40 / Math.max(width, 80)); time += step) {
      const tick = element("span", {}, time === 0 ? "0 s" : duration(time));
      tick.style.left = `${(time / this.#seconds) * 100}%`;
      ticks.push(tick);
    }
    return ticks;
  }
}

/** The next round number of seconds: 1, 2 or 5 of a power of ten, of minutes, of hours. */
function roundStep(seconds) {
  const steps = [60, 120, 300, 600, 1200, 1800, 3600, 7200, 18000, 36000];
  if (seconds > 50 && seconds <= steps.at(-1)) return steps.find((each) => each >= seconds);
  const power = 10 ** Math.floor(Math.log10(seconds));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= seconds);
}

/** The turns and tool calls of a trace: spans with `start` and `end` in seconds. */
function findTurns(trace) {
  const turns = [];
  const tools = new Map();
  const open = new Map();
  const last = trace.rows.at(-1)?.ts ?? 0;
  for (const row of trace.rows) {
    if (row.type === "q" && row.extra?.turn) {
      const response = trace.response(row);
      const turn = { kind: "turn", row, start: row.ts, response, tools: 0 };
      turn.end = response ? response.ts : last;
      turn.isError = Boolean(response?.isError);
      turn.text = row.text;
      turns.push(turn);
      open.set(row.session, turn);
    } else if (row.type === "n" && row.extra?.tool) {
      addTool(tools, open, row);
    }
  }
  const calls = [...tools.values()];
  for (const call of calls) {
    call.end ??= Math.max(call.start, call.turn ? Math.max(call.turn.end, call.last) : call.last);
  }
  return { turns, tools: calls, seconds: last };
}

function addTool(tools, open, row) {
  const { tool, title, kind, status } = row.extra;
  const key = `${row.session} ${tool}`;
  let call = tools.get(key);
  if (!call) {
    const turn = open.get(row.session);
    if (turn) turn.tools += 1;
    call = { kind: "tool", row, start: row.ts, turn, text: tool, isError: false };
    tools.set(key, call);
  }
  call.last = row.ts;
  if (title) call.text = title;
  if (kind) call.toolKind = kind;
  if (status === "completed" || status === "failed") {
    call.end ??= row.ts;
    call.isError ||= status === "failed";
    call.status = status;
  }
}

/** Put spans into tracks, so that none overlaps another; no more than `most` tracks. */
function packed(spans, most) {
  const tracks = [];
  for (const span of [...spans].sort((a, b) => a.start - b.start)) {
    let track = tracks.find((each) => each.at(-1).end <= span.start);
    if (!track && tracks.length < most) tracks.push((track = []));
    track ??= tracks.reduce((a, b) => (a.at(-1).end <= b.at(-1).end ? a : b));
    track.push(span);
  }
  return tracks;
}
