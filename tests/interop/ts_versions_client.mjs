// A client of protocol version 1 or 2, written on the official TypeScript SDK. It prints what its
// agent did, in words that are the same in both versions.
//
//     node ts_versions_client.mjs 1|2 AGENT ARG…

import { spawn } from "node:child_process";
import { once } from "node:events";
import { stream } from "./stdio.mjs";

const v2 = process.argv[2] === "2";
const acp = await import(
  v2 ? "@agentclientprotocol/sdk/experimental/v2/unstable" : "@agentclientprotocol/sdk/unstable"
);
const { agent: methods, client: ofClient } = acp.methods;
const [command, ...args] = process.argv.slice(3);
const cwd = process.cwd();
const done = {};
const heard = new Map();
const waiting = new Map();
let options;
let answerPermission;
let onNext = () => {};

const text = (text) => [{ type: "text", text }];
const described = ({ code, message, data }) => ({ code, message, data });

function onUpdate({ params: { sessionId, update } }) {
  if (!heard.has(sessionId)) heard.set(sessionId, []);
  heard.get(sessionId).push(update);
  onNext();
  if (update.sessionUpdate !== "state_update" || !waiting.has(sessionId)) return;
  const turn = waiting.get(sessionId);
  if (update.state === "idle" && turn.runs) turn.end(update);
  turn.runs = update.state !== "idle"; // an idle state that is reported again ends nothing
}

/** The end of a turn, and the updates before it, as the two versions have them in common. */
async function turn(agent, sessionId, prompt) {
  heard.set(sessionId, []);
  const idle = new Promise((end) => waiting.set(sessionId, { end, runs: false }));
  const params = { sessionId, prompt: text(prompt) };
  let end;
  try {
    const answer = await agent.request(methods.session.prompt, params);
    end = v2 ? await idle : answer;
  } catch (error) {
    end = { error: described(error) };
  }
  waiting.delete(sessionId);
  const { error, stopReason } = end;
  return { end: error ? described(error) : stopReason, ...told(heard.get(sessionId)) };
}

function told(updates) {
  const said = updates.filter(({ sessionUpdate }) => sessionUpdate === "agent_message_chunk");
  const found = { said: said.map(({ content }) => content.text).join("") };
  for (const update of updates) {
    const { sessionUpdate: kind, plan } = update;
    if (kind === "plan" || kind === "plan_update") {
      found.plan = (plan ?? update).entries.map(({ content, status }) => `${content} ${status}`);
    }
    if (kind === "tool_call" || kind === "tool_call_update") {
      found.call = { ...found.call, ...shown(update) };
    }
  }
  return found;
}

function shown({ title, status, content }) {
  const call = Object.fromEntries(
    Object.entries({ title, status }).filter(([, value]) => value != null),
  );
  if (content?.length) {
    call.content = content.map((item) => {
      if (item.type === "content") return item.content.text;
      if (item.type !== "diff") return item.type;
      const lines = item.patch?.text.split("\n").filter((line) => /^[-+][^-+]/.test(line)).join("\n");
      return lines ?? `-${item.oldText}+${item.newText.trimEnd()}`;
    });
  }
  return call;
}

async function onPermission({ params }) {
  const { toolCall, subject } = params;
  return { outcome: await answerPermission((toolCall ?? subject.toolCall).toolCallId, params) };
}

const select = (optionId) => ({ outcome: "selected", optionId });
const attempt = (promise) => promise.catch(described);

async function setMode(agent, sessionId, mode) {
  if (!v2) return agent.request(methods.session.setMode, { sessionId, modeId: mode });
  const { configId } = options.find(({ category }) => category === "mode");
  const chosen = { sessionId, configId, type: "id", value: mode };
  return agent.request(methods.session.setConfigOption, chosen);
}

async function newSession(agent) {
  const result = await agent.request(methods.session.new, { cwd, mcpServers: [] });
  options = result.configOptions;
  return result.sessionId;
}

/** What is shown when a session is opened again. */
async function reopened(agent, sessionId, { replayed }) {
  heard.set(sessionId, []);
  const params = { sessionId, cwd, mcpServers: [] };
  if (v2) {
    const replayFrom = replayed ? { replayFrom: { type: "start" } } : {};
    await agent.request(methods.session.resume, { ...params, ...replayFrom });
  } else {
    await agent.request(replayed ? methods.session.load : methods.session.resume, params);
  }
  return heard
    .get(sessionId)
    .filter(({ sessionUpdate }) => sessionUpdate.endsWith("_message_chunk"))
    .map(({ sessionUpdate, content }) => `${sessionUpdate.split("_")[0]}: ${content.text}`);
}

async function conversation(agent) {
  const initialize = {
    protocolVersion: acp.PROTOCOL_VERSION,
    ...(v2
      ? { info: { name: "client", version: "1" }, capabilities: { elicitation: { form: {} } } }
      : { clientInfo: { name: "client", version: "1" }, clientCapabilities: { elicitation: { form: {} } } }),
  };
  const answer = await agent.request(methods.initialize, initialize);
  done.version = answer.protocolVersion;
  done.logins = answer.authMethods.map(({ id, methodId }) => id ?? methodId);
  await agent.request(v2 ? methods.auth.login : methods.authenticate, { methodId: "key" });
  const one = await newSession(agent);
  const two = await newSession(agent);
  done.loggedIn = await turn(agent, one, "user");
  await agent.request(v2 ? methods.auth.logout : methods.logout, {});
  done.loggedOut = await turn(agent, one, "user");

  await setMode(agent, one, "code");
  done.mode = await turn(agent, one, "mode");
  done.unknownMode = (await attempt(setMode(agent, one, "fly"))).code;

  answerPermission = () => select("no");
  done.refused = await turn(agent, one, "permission");
  answerPermission = async (id) => {
    await agent.notify(methods.session.cancel, { sessionId: one });
    return { outcome: "cancelled" };
  };
  done.cancelledQuestion = await turn(agent, one, "permission");

  const waits = turn(agent, one, "wait");
  done.besides = await turn(agent, two, "mode");
  while (!heard.get(one).some(({ content }) => content?.text === "waits")) {
    await new Promise((resolve) => (onNext = resolve));
  }
  await agent.notify(methods.session.cancel, { sessionId: one });
  done.cancelled = await waits;

  done.error = await turn(agent, one, "error");
  done.tool = await turn(agent, one, "tool");
  done.plan = await turn(agent, one, "plan");
  done.form = await turn(agent, one, "form");

  const abort = new AbortController();
  const slow = agent.request("_vendor/slow", {}, { cancellationSignal: abort.signal });
  abort.abort();
  done.cancelledRequest = (await attempt(slow)).code;
  done.unknownMethod = (await attempt(agent.request("_vendor/missing", {}))).code;

  done.replayed = await reopened(agent, two, { replayed: true });
  done.resumed = await reopened(agent, two, { replayed: false });
  const { sessions } = await agent.request(methods.session.list, {});
  done.listed = sessions.map(({ sessionId }) => sessionId);
  await agent.request(methods.session.close, { sessionId: two });
  await agent.request(methods.session.delete, { sessionId: two });
  done.left = (await agent.request(methods.session.list, {})).sessions.length;

  done.died = await turn(agent, one, "die");
  done.restarted = await turn(agent, one, "mode");
}

const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
const exited = once(child, "exit");
await acp
  .client({ name: "ts-versions-client" })
  .onNotification(ofClient.session.update, onUpdate)
  .onRequest(ofClient.session.requestPermission, onPermission)
  .onRequest(ofClient.elicitation.create, () => ({ action: "accept", content: { color: "red" } }))
  .connectWith(stream(acp.ndJsonStream, child.stdin, child.stdout), conversation);
child.stdin.end();
const [status, signal] = await exited;
console.log(JSON.stringify({ done, exit: status ?? signal }));
