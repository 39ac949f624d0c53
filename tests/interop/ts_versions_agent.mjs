// An agent of protocol version 1 or 2, written on the official TypeScript SDK: what the versions have
// in different forms.
//
//     node ts_versions_agent.mjs 1|2
//
// A prompt is one of the commands of `turns`.

import { setTimeout } from "node:timers/promises";
import { stream } from "./stdio.mjs";

const v2 = process.argv[2] === "2";
const acp = await import(
  v2 ? "@agentclientprotocol/sdk/experimental/v2/unstable" : "@agentclientprotocol/sdk/unstable"
);
const { agent: methods, client: ofClient } = acp.methods;
const OPTIONS = [
  { optionId: "yes", name: "Yes", kind: "allow_once" },
  { optionId: "no", name: "No", kind: "reject_once" },
];
const MODES = ["ask", "code"];
const sessions = new Map();
let counted = 0;
let user = null;

const text = (text) => ({ type: "text", text });
const known = (id) => sessions.get(id) ?? { mode: "ask", said: [], cancelled: () => {} };

function state({ mode }) {
  const values = MODES.map((id) => ({ name: id.toUpperCase(), ...(v2 ? { value: id } : { id }) }));
  if (!v2) return { modes: { currentModeId: mode, availableModes: values } };
  const option = { configId: "m", name: "Mode", category: "mode", type: "select", options: values };
  return { configOptions: [{ ...option, currentValue: mode }] };
}

function initialize() {
  const name = { name: `agent of version ${v2 ? 2 : 1}`, version: "1" };
  const method = { name: "Key", ...(v2 ? { methodId: "key", type: "agent" } : { id: "key" }) };
  const session = { delete: {}, fork: {} };
  if (v2) {
    const capabilities = { session, auth: {} };
    return { protocolVersion: 2, info: name, capabilities, authMethods: [method] };
  }
  const agentCapabilities = {
    loadSession: true,
    auth: { logout: {} },
    sessionCapabilities: { ...session, list: {}, resume: {}, close: {} },
  };
  return { protocolVersion: 1, agentInfo: name, agentCapabilities, authMethods: [method] };
}

function newSession({ params }) {
  const sessionId = `session-${++counted}`;
  const session = { sessionId, cwd: params.cwd, mode: "ask", said: [], cancelled: () => {} };
  sessions.set(sessionId, session);
  return { sessionId, ...state(session) };
}

async function open({ params, client }) {
  const { sessionId, cwd } = params;
  if (!sessions.has(sessionId)) sessions.set(sessionId, { ...known(sessionId), sessionId, cwd });
  const session = sessions.get(sessionId);
  if (!v2 || params.replayFrom) await replay(session, client);
  if (v2) await notify(client, sessionId, { sessionUpdate: "state_update", state: "idle" });
  return state(session);
}

async function replay({ sessionId, said }, client) {
  for (const [index, [kind, content]] of said.entries()) {
    const update = { sessionUpdate: `${kind}_message_chunk`, content: text(content) };
    await notify(client, sessionId, { ...update, messageId: `old-${index}` });
  }
}

const notify = (client, sessionId, update) =>
  client.notify(ofClient.session.update, { sessionId, update });

function question(sessionId, toolCall) {
  const asked = { sessionId, options: OPTIONS };
  if (!v2) return { ...asked, toolCall };
  return { ...asked, title: "May I?", subject: { type: "tool_call", toolCall } };
}

const turns = {
  async mode({ session, say }) {
    await say(session.mode);
  },

  async permission({ session, say, client, update }) {
    const call = { toolCallId: "c", title: "Edit", kind: "edit", status: "pending" };
    await update({ sessionUpdate: v2 ? "tool_call_update" : "tool_call", ...call });
    const asked = question(session.sessionId, { toolCallId: "c" });
    const { outcome } = await client.request(ofClient.session.requestPermission, asked);
    await say(outcome.optionId ?? outcome.outcome);
    return outcome.outcome === "cancelled" ? { stopReason: "cancelled" } : {};
  },

  async wait({ session, say }) {
    const cancelled = new Promise((resolve) => (session.cancelled = resolve));
    await say("waits");
    await cancelled;
    return { stopReason: "cancelled" };
  },

  async error() {
    throw new acp.RequestError(-32001, "no tokens left", { limit: 5 });
  },

  async tool({ update }) {
    const call = { toolCallId: "t", title: "Write", kind: "edit", status: "in_progress" };
    await update({ sessionUpdate: v2 ? "tool_call_update" : "tool_call", ...call });
    const changes = [{ operation: "modify", path: "/a", fileType: "text" }];
    const patch = "--- /a\n+++ /a\n@@ -1 +1 @@\n-old\n+new\n";
    const of2 = { changes, patch: { format: "git_patch", text: patch } };
    const of1 = { path: "/a", oldText: "old\n", newText: "new\n" };
    const content = [{ type: "content", content: text("done") }, { type: "diff", ...(v2 ? of2 : of1) }];
    const end = { toolCallId: "t", status: "completed", content };
    await update({ sessionUpdate: "tool_call_update", ...end });
  },

  async plan({ update }) {
    const entries = [{ content: "greet", priority: "high", status: "completed" }];
    if (!v2) await update({ sessionUpdate: "plan", entries });
    else await update({ sessionUpdate: "plan_update", plan: { type: "items", planId: "p", entries } });
  },

  async form({ session, say, client }) {
    const properties = { color: { type: "string", title: "Color" } };
    const requestedSchema = { type: "object", properties, required: ["color"] };
    const asked = { sessionId: session.sessionId, mode: "form", message: "Which?", requestedSchema };
    const answer = await client.request(ofClient.elicitation.create, asked);
    await say(`${answer.action} ${answer.content?.color}`);
  },

  async user({ say }) {
    await say(String(user));
  },

  die() {
    process.exit(3);
  },
};

async function prompt({ params, client }) {
  const { sessionId, prompt: content } = params;
  const session = sessions.get(sessionId);
  const update = (value) => notify(client, sessionId, value);
  const messageId = v2 ? { messageId: `m-${++counted}` } : {};
  const say = (said) => {
    session.said.push(["agent", said]);
    return update({ sessionUpdate: "agent_message_chunk", ...messageId, content: text(said) });
  };
  const command = content[0].text;
  const context = { session, say, client, update };
  session.said.push(["user", command]);
  if (!v2) return { stopReason: "end_turn", ...(await turns[command](context)) };
  const id = `u-${++counted}`;
  void (async () => {
    await setTimeout(); // the prompt is answered first
    await update({ sessionUpdate: "state_update", state: "running" });
    const end = await turns[command](context).catch(({ code, message, data }) => ({
      stopReason: "error",
      error: { code, message, data },
    }));
    const idle = { sessionUpdate: "state_update", state: "idle", stopReason: "end_turn" };
    await update({ ...idle, ...end });
  })();
  return { messageId: id };
}

function setMode(id, mode) {
  if (!MODES.includes(mode)) throw acp.RequestError.invalidParams({ mode });
  known(id).mode = mode;
  return v2 ? state(known(id)) : {};
}

const app = acp
  .agent({ name: "ts-versions-agent" })
  .onRequest(methods.initialize, initialize)
  .onRequest(methods.session.new, newSession)
  .onRequest(methods.session.prompt, prompt)
  .onRequest(methods.session.list, () => ({
    sessions: [...sessions.values()].map(({ sessionId, cwd }) => ({ sessionId, cwd })),
  }))
  .onRequest(methods.session.delete, ({ params }) => {
    sessions.delete(params.sessionId);
    return {};
  })
  .onRequest(methods.session.close, () => ({}))
  .onRequest("_vendor/slow", (params) => params, async ({ signal }) => {
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    throw acp.RequestError.requestCancelled();
  })
  .onNotification(methods.session.cancel, ({ params }) => known(params.sessionId).cancelled());
if (v2) {
  app
    .onRequest(methods.session.resume, open)
    .onRequest(methods.session.setConfigOption, ({ params }) => setMode(params.sessionId, params.value))
    .onRequest(methods.auth.login, ({ params }) => ((user = params.methodId), {}))
    .onRequest(methods.auth.logout, () => ((user = null), {}));
} else {
  app
    .onRequest(methods.session.load, open)
    .onRequest(methods.session.resume, ({ params }) => {
      const { sessionId, cwd } = params;
      if (!sessions.has(sessionId)) sessions.set(sessionId, { ...known(sessionId), sessionId, cwd });
      return state(known(sessionId));
    })
    .onRequest(methods.session.setMode, ({ params }) => setMode(params.sessionId, params.modeId))
    .onRequest(methods.authenticate, ({ params }) => ((user = params.methodId), {}))
    .onRequest(methods.logout, () => ((user = null), {}));
}
app.connect(stream(acp.ndJsonStream));
