// An agent on the official TypeScript SDK that uses what only some clients have, as far as the
// client announces it. Prompts are the names of `commands`. What it learns it says, or `not announced`.

import * as acp from "@agentclientprotocol/sdk/unstable";
import { stream } from "./stdio.mjs";

const NONE = "not announced";
let known = {};
let isFast = false;
let cwd = "";

function initialize({ params }) {
  known = params.clientCapabilities ?? {};
  return { protocolVersion: 1, agentCapabilities: {}, authMethods: [] };
}

function options() {
  if (!known.session?.configOptions?.boolean) return [];
  return [{ id: "fast", name: "Fast", type: "boolean", currentValue: isFast }];
}

function setOption({ params }) {
  if (typeof params.value !== "boolean") throw acp.RequestError.invalidParams(params);
  isFast = params.value;
  return { configOptions: options() };
}

const commands = {
  async form(client, sessionId) {
    if (!known.elicitation?.form) return NONE;
    const properties = { colour: { type: "string", enum: ["red", "blue"] } };
    const requestedSchema = { type: "object", properties };
    const params = { mode: "form", sessionId, message: "Which colour?", requestedSchema };
    const { action, content } = await client.request("elicitation/create", params);
    return `${action} ${content.colour}`;
  },
  option: async () => `fast ${isFast}`,
  async notice(client, sessionId) {
    if (!known.session?.notices) return NONE;
    const update = { sessionUpdate: "notice", severity: "warning", title: "Careful" };
    await client.notify("session/update", { sessionId, update });
    return "sent";
  },
  async files(client, sessionId) {
    if (!known.fs?.writeTextFile) return NONE;
    const path = `${cwd}/needy.txt`;
    await client.request("fs/write_text_file", { sessionId, path, content: "one\ntwo\n" });
    const part = { sessionId, path, line: 2, limit: 1 };
    return (await client.request("fs/read_text_file", part)).content.trim();
  },
  async terminal(client, sessionId) {
    if (!known.terminal) return NONE;
    const command = { sessionId, command: "echo ran; exit 3" };
    const { terminalId } = await client.request("terminal/create", command);
    const exit = await client.request("terminal/wait_for_exit", { sessionId, terminalId });
    const { output } = await client.request("terminal/output", { sessionId, terminalId });
    await client.request("terminal/release", { sessionId, terminalId });
    return `${output.trim()} ${exit.exitCode}`;
  },
};

async function prompt({ params: { sessionId, prompt }, client }) {
  const text = `${await commands[prompt[0].text](client, sessionId)};`;
  const update = { sessionUpdate: "agent_message_chunk", content: { type: "text", text } };
  await client.notify("session/update", { sessionId, update });
  return { stopReason: "end_turn" };
}

acp
  .agent({ name: "ts-needy-agent" })
  .onRequest(acp.methods.agent.initialize, initialize)
  .onRequest(acp.methods.agent.session.new, ({ params }) => {
    cwd = params.cwd;
    return { sessionId: "needy", configOptions: options() };
  })
  .onRequest("session/set_config_option", setOption)
  .onRequest(acp.methods.agent.session.prompt, prompt)
  .connect(stream(acp.ndJsonStream));
