// A client written on the official TypeScript SDK; py_client.py is its twin and explains the output.
//
//     node ts_client.mjs [--request-cancel] AGENT ARG… | URL
//
// With --request-cancel the prompt `wait` is cancelled by `$/cancel_request`.

import * as acp from "@agentclientprotocol/sdk/unstable";
import { reach } from "./reach.mjs";

const _meta = { traceparent: "00-80e1afed08e019fc1110464cfa66635c-7a085853722dc6d2-01" };
const cwd = process.cwd();
const PROMPTS = ["hello", "permission", `read ${cwd}/notes.txt`, "big 300000", "ask", "wait"];
const requestCancel = process.argv[2] === "--request-cancel";
const [command, ...args] = process.argv.slice(requestCancel ? 3 : 2);

const summary = {};
const events = [];
let abort = new AbortController();

async function sessionUpdate({ params, agent }) {
  const { sessionId, update } = params;
  events.push(["update", sessionId, update]);
  if (update.content?.text?.endsWith("wait")) {
    if (requestCancel) abort.abort();
    else await agent.notify(acp.methods.agent.session.cancel, { sessionId });
  }
}

function requestPermission({ params }) {
  events.push(["permission", params.sessionId, params.toolCall, params.options]);
  return { outcome: { outcome: "selected", optionId: params.options[0].optionId } };
}

function readTextFile({ params }) {
  events.push(["read", params.sessionId, params.path, params.line, params.limit]);
  return { content: 'line two: \t"quoted" \\ \u2603 \u{1f600}\r\n' };
}

function ask({ params }) {
  events.push(["asked", "_vendor/ask", params]);
  return { answer: 42, nothing: null };
}

async function conversation(agent) {
  summary.initialize = await agent.request(acp.methods.agent.initialize, {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientCapabilities: { fs: { readTextFile: true, writeTextFile: false } },
    clientInfo: { name: "ts-client", version: "1.0" },
  });
  const env = [{ name: "KEY", value: "a=b c" }];
  const mcpServers = [{ name: "notes", command: "/bin/notes", args: ["-v"], env }];
  summary.session = await agent.request(acp.methods.agent.session.new, { cwd, mcpServers });
  const { sessionId } = summary.session;
  for (const text of PROMPTS) {
    const params = { sessionId, prompt: [{ type: "text", text }], _meta };
    const options = { cancellationSignal: abort.signal };
    const answer = await agent.request(acp.methods.agent.session.prompt, params, options);
    events.push(["answer", answer]);
  }
  events.push(["result", await agent.request("_vendor/echo", { n: [1, null] })]);
  await agent.request("_vendor/missing", {}).catch(({ code, message, data }) => {
    events.push(["error", { code, message, data }]);
  });
}

const { stream, ended } = await reach(acp, command, args);
await acp
  .client({ name: "ts-client" })
  .onNotification(acp.methods.client.session.update, sessionUpdate)
  .onRequest(acp.methods.client.session.requestPermission, requestPermission)
  .onRequest(acp.methods.client.fs.readTextFile, readTextFile)
  .onRequest("_vendor/ask", (params) => params, ask)
  .connectWith(stream, conversation);
console.log(JSON.stringify({ ...summary, events, exit: await ended() }));
