// A JSON value as a tree that can be folded.
import { element } from "./dom.js";
import { RawNumber, printable } from "./format.js";

const LONGEST = 4000;
const PREVIEW = 90;
const OPEN_DEPTH = 3;

/** The tree of a value. */
export function jsonView(value) {
  return element("div", { class: "json" }, member([], value, 0));
}

/** One line with its name, if it has one; or an object or array that can be folded. */
function member(name, value, depth) {
  if (Array.isArray(value) && value.length) {
    return branch(name, value, value.map((each) => [null, each]), depth);
  }
  const isObject = value !== null && typeof value === "object" && !(value instanceof RawNumber);
  const entries = isObject ? Object.entries(value) : [];
  if (entries.length) return branch(name, value, entries, depth);
  return element("div", { class: "member" }, name, leaf(value));
}

function leaf(value) {
  if (typeof value === "string") return textNode(value);
  if (value instanceof RawNumber) return element("span", { class: "number" }, value.source);
  const kind = typeof value === "number" ? "number" : typeof value === "object" ? "mark" : "word";
  return element("span", { class: kind }, value === null ? "null" : JSON.stringify(value));
}

function textNode(value) {
  const shown = element("span", { class: "string" }, quoted(value.slice(0, LONGEST)));
  if (value.length <= LONGEST) return shown;
  const more = element("button", { type: "button", class: "more", onclick: all });
  more.append(`… ${(value.length - LONGEST).toLocaleString("en")} more characters`);
  function all() {
    shown.textContent = quoted(value);
    more.remove();
  }
  return element("span", {}, shown, more);
}

function quoted(text) {
  return `"${printable(text, true)}"`;
}

function branch(name, value, entries, depth) {
  const inner = element("div", { class: "members" });
  const preview = element("span", { class: "preview" }, shortText(value));
  const details = element("details", { class: "member", open: depth < OPEN_DEPTH });
  details.append(element("summary", {}, name, preview), inner);
  const fill = () => {
    if (!inner.firstChild) addMembers(inner, entries, depth);
  };
  if (details.open) fill();
  details.addEventListener("toggle", fill);
  return details;
}

/** What is in an object or array, in a few words. */
function shortText(value) {
  if (Array.isArray(value)) return `[ ${value.length} ]`;
  const texts = Object.entries(value).map(([name, each]) => {
    if (typeof each === "string") return `${name}: "${each.slice(0, 30)}${each.length > 30 ? "…" : ""}"`;
    if (each === null || typeof each !== "object") return `${name}: ${each}`;
    return `${name}: …`;
  });
  return printable(`{ ${texts.slice(0, 6).join(", ").slice(0, PREVIEW)} }`);
}

function addMembers(inner, entries, depth) {
  for (const [name, value] of entries) {
    const key = name === null ? [] : [element("span", { class: "key" }, printable(name)), ": "];
    inner.append(member(key, value, depth + 1));
  }
}
