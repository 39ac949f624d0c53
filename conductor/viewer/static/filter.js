// Which rows are shown.

/** Kinds of records that can be left out, with their labels; the last two are off at first. */
export const KINDS = {
  acp: "ACP",
  mcp: "MCP",
  requests: "requests",
  notifications: "notifications",
  responses: "responses",
  handlers: "handlers",
  log: "log",
};

const OF_TYPE = { q: "requests", n: "notifications", r: "responses" };

/** The criteria at first. `session`, `chain` and `hop` are numbers, or -1 for all. */
export function everything() {
  const shown = new Set(["acp", "mcp", "requests", "notifications", "responses"]);
  return { shown, session: -1, chain: -1, hop: -1, errors: false, changed: false, found: null };
}

/** The numbers of the rows that meet the criteria. */
export function visibleRows(trace, criteria) {
  const visible = new Int32Array(trace.rows.length);
  let count = 0;
  for (const row of trace.rows) {
    if (accepts(trace, criteria, row)) visible[count++] = row.i;
  }
  return visible.subarray(0, count);
}

function accepts(trace, criteria, row) {
  const { shown, session, chain, hop, errors, changed, found } = criteria;
  if (found && !found.has(row.i)) return false;
  if (chain >= 0 && row.chain !== chain) return false;
  if (errors && !row.isError) return false;
  if (changed && !row.isChanged) return false;
  if (row.isMessage) {
    if (!shown.has(row.isMcp ? "mcp" : "acp") || !shown.has(OF_TYPE[row.type])) return false;
    return (hop < 0 || row.hop === hop) && (session < 0 || row.session === session);
  }
  if (row.type === "t" || row.type === "x") return true;
  if (session >= 0 && trace.session(row) !== session) return false;
  if (row.type === "h") return shown.has("handlers") && hop < 0;
  return shown.has("log") || (row.type === "l" && (row.isError || row.extra?.level === "warning"));
}
