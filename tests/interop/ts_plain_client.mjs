// A client without capabilities, on the official TypeScript SDK; py_plain_client.py is its twin and
// explains what it does.

import * as acp from "@agentclientprotocol/sdk";
import { reach } from "./reach.mjs";

const [prompts, command, ...args] = process.argv.slice(2);
const questions = [];
const kinds = [];
let text = "";

async function conversation(agent) {
  const clientInfo = { name: "ts-plain-client", version: "1.0" };
  const told = { protocolVersion: 1, clientCapabilities: {}, clientInfo };
  await agent.request(acp.methods.agent.initialize, told);
  const opened = { cwd: process.cwd(), mcpServers: [] };
  const { sessionId, configOptions } = await agent.request(acp.methods.agent.session.new, opened);
  for (const { id, type } of configOptions ?? []) {
    kinds.push(type);
    const chosen = { sessionId, configId: id, value: "on" };
    await agent.request("session/set_config_option", chosen);
  }
  for (const text of prompts.split(",")) {
    const prompt = [{ type: "text", text }];
    await agent.request(acp.methods.agent.session.prompt, { sessionId, prompt });
  }
}

const { stream, ended } = await reach(acp, command, args);
await acp
  .client({ name: "ts-plain-client" })
  .onNotification(acp.methods.client.session.update, ({ params: { update } }) => {
    if (update.sessionUpdate === "agent_message_chunk") text += update.content.text;
  })
  .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
    questions.push(params.toolCall.title);
    return { outcome: { outcome: "selected", optionId: params.options[1].optionId } };
  })
  .connectWith(stream, conversation);
console.log(JSON.stringify({ options: kinds, questions, text, exit: await ended() }));
