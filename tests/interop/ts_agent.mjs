// An agent written on the official TypeScript SDK; py_agent.py is its twin and explains the prompts.
//
// Here `wait` also ends when the prompt is cancelled by `$/cancel_request`. Run as a program it is
// served on stdin and stdout; ts_server.mjs imports it.

import * as acp from "@agentclientprotocol/sdk/unstable";
import { stream } from "./stdio.mjs";

const OPTIONS = [
  { optionId: "yes", name: "Yes, once", kind: "allow_once" },
  { optionId: "no", name: "Not now", kind: "reject_once" },
];
const cancels = new Map();
let sessions = 0;

function initialize({ params }) {
  return {
    protocolVersion: Math.min(params.protocolVersion, acp.PROTOCOL_VERSION),
    agentCapabilities: {
      loadSession: false,
      promptCapabilities: { image: true, embeddedContext: true },
      mcpCapabilities: { http: true, sse: false },
    },
    agentInfo: { name: "ts-agent", title: "TypeScript agent", version: "1.0" },
    authMethods: [],
  };
}

async function newSession({ params, client }) {
  const sessionId = `ts-session-${++sessions}`;
  const availableCommands = [{ name: "hello", description: "Says hello — ¡hola!" }];
  const update = { sessionUpdate: "available_commands_update", availableCommands };
  await client.notify(acp.methods.client.session.update, { sessionId, update });
  return { sessionId, _meta: { cwd: params.cwd, mcpServers: params.mcpServers } };
}

async function prompt({ params, client, signal }) {
  const { sessionId, _meta } = params;
  const text = params.prompt.map((block) => block.text ?? "").join("");
  const [command, argument] = text.replace(/^(\[.*?\])+/, "").split(" ");
  const update = (value) =>
    client.notify(acp.methods.client.session.update, { sessionId, update: value });
  const say = (text, sessionUpdate = "agent_message_chunk") =>
    update({ sessionUpdate, content: { type: "text", text } });
  const cancelled = new Promise((resolve) => {
    cancels.set(sessionId, resolve);
    signal.addEventListener("abort", resolve);
  });

  await say(`you said: ${text}`);
  if (command === "die") process.exit(3);
  if (command === "hello") {
    await say("\u2028 thinking \u{1f914} \0", "agent_thought_chunk");
    const entries = [{ content: "greet", priority: "medium", status: "completed" }];
    await update({ sessionUpdate: "plan", entries });
    await say("Hello!");
  } else if (command === "permission") {
    const call = { toolCallId: "call-1", title: "Edit config" };
    const rawInput = { n: Number.MAX_SAFE_INTEGER };
    await update({ sessionUpdate: "tool_call", ...call, kind: "edit", status: "pending", rawInput });
    const question = { sessionId, toolCall: call, options: OPTIONS };
    const answer = await client.request(acp.methods.client.session.requestPermission, question);
    const done = { toolCallId: "call-1", status: "completed", rawOutput: answer.outcome };
    await update({ sessionUpdate: "tool_call_update", ...done });
  } else if (command === "read") {
    const question = { sessionId, path: argument, line: 2, limit: 1 };
    await say((await client.request(acp.methods.client.fs.readTextFile, question)).content);
  } else if (command === "big") {
    await say("é".repeat(Number(argument) / 2));
  } else if (command === "ask") {
    await say(JSON.stringify(await client.request("_vendor/ask", { question: "why?" })));
  } else if (command === "wait") {
    await cancelled;
    return { stopReason: "cancelled", _meta };
  }
  return { stopReason: "end_turn", _meta };
}

export const app = acp
  .agent({ name: "ts-agent" })
  .onRequest(acp.methods.agent.initialize, initialize)
  .onRequest(acp.methods.agent.session.new, newSession)
  .onRequest(acp.methods.agent.session.prompt, prompt)
  .onRequest("_vendor/echo", (params) => params, ({ params }) => ({ echo: params }))
  .onNotification(acp.methods.agent.session.cancel, ({ params }) => cancels.get(params.sessionId)());

if (process.argv[1].endsWith("ts_agent.mjs")) app.connect(stream(acp.ndJsonStream));
