// Numbers and text for people.

/** `0.25 ms`, `12.5 s`, as `trace show` has it. */
export function duration(seconds) {
  if (seconds < 0.0995) return `${shortNumber(seconds * 1000)} ms`;
  if (seconds < 99.5) return `${shortNumber(seconds)} s`;
  if (seconds < 5970) return `${Number((seconds / 60).toFixed(1))} min`;
  return `${Number((seconds / 3600).toFixed(1))} h`;
}

/** `71 B`, `2.2 kB`, `1.3 MB`. */
export function bytes(size) {
  if (size < 1000) return `${size} B`;
  if (size < 999500) return `${shortNumber(size / 1000)} kB`;
  return `${(size / 1e6).toFixed(1)} MB`;
}

export function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

function shortNumber(value) {
  return String(Number(value.toPrecision(3)));
}

const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Cs}\u2028\u2029]/gu;
const SHOWN = new Set(["\n", "\t", "\u200d"]);

/** Text with characters that are not seen, or that turn the writing direction, as escapes. */
export function printable(text, keepsLines = false) {
  return text.replace(UNPRINTABLE, (char) => {
    if (SHOWN.has(char) && (keepsLines || char === "\u200d")) return char;
    return `\\u{${char.codePointAt(0).toString(16)}}`;
  });
}

/** JSON as a value; numbers that JavaScript would round or not know are kept as `RawNumber`. */
export function parseJson(text) {
  return JSON.parse(text, (name, value, context) => {
    if (typeof value !== "number" || !context?.source) return value;
    const isWhole = /^-?\d+$/.test(context.source);
    const isKept = isWhole ? Number.isSafeInteger(value) : Number.isFinite(value);
    return isKept ? value : new RawNumber(context.source);
  });
}

export class RawNumber {
  constructor(source) {
    this.source = source;
  }
}
