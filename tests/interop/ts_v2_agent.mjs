// An agent of the draft protocol version 2, written on the official TypeScript SDK.

import * as acp from "@agentclientprotocol/sdk/experimental/v2/unstable";
import { stream } from "./stdio.mjs";

function initialize() {
  return {
    protocolVersion: acp.PROTOCOL_VERSION,
    info: { name: "ts-v2-agent", title: "TypeScript agent", version: "2.0" },
    capabilities: { session: { mcp: { stdio: {}, http: {} }, prompt: { image: {} } } },
    _meta: { "example.org/kept": [1, { deep: null }] },
  };
}

async function prompt({ params, client }) {
  const { sessionId, prompt: content } = params;
  const update = (value) =>
    client.notify(acp.methods.client.session.update, { sessionId, update: value });
  const text = `you said: ${content[0].text}`;
  await update({ sessionUpdate: "state_update", state: "running" });
  if (text.endsWith("die")) process.exit(3);
  await update({ sessionUpdate: "user_message", messageId: "m-1", content });
  const chunk = { messageId: "m-2", content: { type: "text", text } };
  await update({ sessionUpdate: "agent_message_chunk", ...chunk });
  await update({ sessionUpdate: "state_update", state: "idle", stopReason: "end_turn" });
  return { messageId: "m-1" };
}

async function resume({ params, client }) {
  const update = { sessionUpdate: "state_update", state: "idle" };
  await client.notify(acp.methods.client.session.update, { sessionId: params.sessionId, update });
  return {};
}

acp
  .agent({ name: "ts-v2-agent" })
  .onRequest(acp.methods.agent.initialize, initialize)
  .onRequest(acp.methods.agent.session.new, () => ({ sessionId: "ts-v2-session" }))
  .onRequest(acp.methods.agent.session.resume, resume)
  .onRequest(acp.methods.agent.session.close, () => ({}))
  .onRequest(acp.methods.agent.session.prompt, prompt)
  .onRequest("_vendor/echo", (params) => params, ({ params }) => ({ echo: params }))
  .connect(stream(acp.ndJsonStream));
