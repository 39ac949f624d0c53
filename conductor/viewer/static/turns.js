// Prompt turns and tool calls, for the timeline.

/** The turns and tool calls of a trace: spans with `start` and `end` in seconds. */
export function findTurns(trace) {
  const turns = [];
  const tools = new Map();
  const open = new Map();
  const last = trace.rows.at(-1)?.ts ?? 0;
  for (const row of trace.rows) {
    if (row.type === "q" && row.extra?.turn) {
      const response = trace.response(row);
      const turn = { kind: "turn", row, session: row.session, start: row.ts, response, tools: 0 };
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
    call = { kind: "tool", row, session: row.session, start: row.ts, turn, text: tool, isError: false };
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
export function packed(spans, most) {
  const tracks = [];
  for (const span of [...spans].sort((a, b) => a.start - b.start)) {
    let track = tracks.find((each) => each.at(-1).end <= span.start);
    if (!track && tracks.length < most) tracks.push((track = []));
    track ??= tracks.reduce((a, b) => (a.at(-1).end <= b.at(-1).end ? a : b));
    track.push(span);
  }
  return tracks;
}
