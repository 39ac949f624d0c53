// The difference of two JSON values, as lines of their text.
import { element } from "./dom.js";
import { RawNumber, printable } from "./format.js";

const MOST_CELLS = 4e6;
const CONTEXT = 3;
const AROUND = 60;

/** Lines `{ mark, old, new }` with the mark " ", "-", "+" or "~" (changed); none if equal. */
export function diffLines(old, now) {
  const before = lines(withoutMarks(old));
  const after = lines(inOrder(withoutMarks(now), withoutMarks(old)));
  const edits = align(before, after);
  return edits.some((each) => each.mark !== " ") ? edits : [];
}

/** The difference as elements, with a few equal lines around what is different. */
export function diffView(edits) {
  const kept = new Set();
  edits.forEach(({ mark }, at) => {
    if (mark === " ") return;
    for (let i = at - CONTEXT; i <= at + CONTEXT; i += 1) kept.add(i);
  });
  const view = element("div", { class: "diff" });
  let left = 0;
  edits.forEach((edit, at) => {
    if (!kept.has(at)) {
      left += 1;
      return;
    }
    if (left) view.append(element("div", { class: "left-out" }, `… ${left} equal lines`));
    left = 0;
    view.append(...shownEdit(edit));
  });
  if (left) view.append(element("div", { class: "left-out" }, `… ${left} equal lines`));
  return view;
}

function shownEdit({ mark, old, now }) {
  if (mark !== "~") return [line(mark, [printable(mark === "+" ? now : old)])];
  let start = 0;
  while (start < old.length && old[start] === now[start]) start += 1;
  let end = 0;
  const most = Math.min(old.length, now.length) - start;
  while (end < most && old.at(-1 - end) === now.at(-1 - end)) end += 1;
  return [line("-", parts(old, start, end)), line("+", parts(now, start, end))];
}

/** A line with its changed part marked; long equal parts are cut. */
function parts(text, start, end) {
  const indent = text.length - text.trimStart().length;
  const head = text.slice(0, start);
  const tail = text.slice(text.length - end);
  const changed = text.slice(start, text.length - end);
  const isLong = head.length > indent + 2 * AROUND;
  return [
    printable(isLong ? `${head.slice(0, indent + 30)}…${head.slice(-AROUND)}` : head),
    changed && element("mark", {}, printable(changed)),
    printable(tail.length > 2 * AROUND ? `${tail.slice(0, AROUND)}…` : tail),
  ];
}

function line(mark, children) {
  const kind = { "-": "removed", "+": "added", " ": "equal" }[mark];
  const sign = element("span", { class: "sign" }, mark);
  return element("div", { class: `line ${kind}` }, sign, element("span", {}, children));
}

/** Lines of indented JSON, without the commas at their ends. */
function lines(value) {
  const shown = JSON.stringify(value, (_, each) => (each instanceof RawNumber ? each.source : each), 2);
  return (shown ?? "null").split(/,?\n/);
}

/** Without the members of `_meta` that are between proxies of the conductor. */
function withoutMarks(value) {
  const meta = value?._meta;
  if (meta === null || typeof meta !== "object" || Array.isArray(meta)) return value;
  const kept = Object.entries(meta).filter(([name]) => !name.startsWith("acp-conductor/"));
  const { _meta, ...rest } = value;
  return kept.length ? { ...rest, _meta: Object.fromEntries(kept) } : rest;
}

/** A value with the members of its objects in the order of another's. */
function inOrder(value, model) {
  if (Array.isArray(value)) {
    return value.map((each, i) => inOrder(each, Array.isArray(model) ? model[i] : undefined));
  }
  const isObject = value !== null && typeof value === "object" && !(value instanceof RawNumber);
  if (!isObject || model === null || typeof model !== "object") return value;
  const known = Object.keys(model).filter((name) => Object.hasOwn(value, name));
  const added = Object.keys(value).filter((name) => !Object.hasOwn(model, name));
  return Object.fromEntries([...known, ...added].map((name) => [name, inOrder(value[name], model[name])]));
}

/** The fewest removed and added lines, common beginning and end first. */
function align(a, b) {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < Math.min(a.length, b.length) - start && a.at(-1 - end) === b.at(-1 - end)) end += 1;
  const same = (text) => ({ mark: " ", old: text, now: text });
  const inner = shortest(a.slice(start, a.length - end), b.slice(start, b.length - end));
  return [...a.slice(0, start).map(same), ...paired(inner), ...a.slice(a.length - end).map(same)];
}

/** By the length of the longest common part of what is left of both. */
function shortest(a, b) {
  if (a.length * b.length > MOST_CELLS) {
    return [...a.map((old) => ({ mark: "-", old })), ...b.map((now) => ({ mark: "+", now }))];
  }
  const width = b.length + 1;
  const common = new Uint32Array((a.length + 1) * width);
  for (let x = a.length - 1; x >= 0; x -= 1) {
    for (let y = b.length - 1; y >= 0; y -= 1) {
      const at = x * width + y;
      common[at] = a[x] === b[y] ? common[at + width + 1] + 1 : Math.max(common[at + width], common[at + 1]);
    }
  }
  const found = [];
  for (let x = 0, y = 0; x < a.length || y < b.length; ) {
    const at = x * width + y;
    if (x < a.length && a[x] === b[y]) found.push({ mark: " ", old: a[x++], now: b[y++] });
    else if (y === b.length || (x < a.length && common[at + width] >= common[at + 1])) found.push({ mark: "-", old: a[x++] });
    else found.push({ mark: "+", now: b[y++] });
  }
  return found;
}

/** Runs of as many removed as added lines become changed lines. */
function paired(edits) {
  const found = [];
  for (let at = 0; at < edits.length; ) {
    const removed = run(edits, at, "-");
    const added = run(edits, at + removed, "+");
    if (removed && removed === added) {
      for (let i = 0; i < removed; i += 1) {
        found.push({ mark: "~", old: edits[at + i].old, now: edits[at + removed + i].now });
      }
    } else {
      found.push(...edits.slice(at, at + Math.max(removed + added, 1)));
    }
    at += Math.max(removed + added, 1);
  }
  return found;
}

function run(edits, from, mark) {
  let at = from;
  while (at < edits.length && edits[at].mark === mark) at += 1;
  return at - from;
}
