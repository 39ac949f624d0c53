// A client of the draft protocol version 2, written on the official TypeScript SDK.
//
//     node ts_v2_client.mjs AGENT ARG…
//
// It prints what the other clients print.

import { spawn } from "node:child_process";
import { once } from "node:events";
import * as acp from "@agentclientprotocol/sdk/experimental/v2/unstable";
import { stream } from "./stdio.mjs";

const summary = {};
const events = [];
let end;
const ended = new Promise((resolve) => (end = resolve));
const [command, ...args] = process.argv.slice(2);

async function conversation(agent) {
  summary.initialize = await agent.request(acp.methods.agent.initialize, {
    protocolVersion: acp.PROTOCOL_VERSION,
    info: { name: "ts-v2-client", version: "2.0" },
    capabilities: {},
  });
  const session = { cwd: process.cwd(), mcpServers: [] };
  summary.session = await agent.request(acp.methods.agent.session.new, session);
  const { sessionId } = summary.session;
  const prompt = [{ type: "text", text: "hello" }];
  const answer = await agent.request(acp.methods.agent.session.prompt, { sessionId, prompt });
  events.push(["answer", answer]);
  await ended;
}

const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
const exited = once(child, "exit");
await acp
  .client({ name: "ts-v2-client" })
  .onNotification(acp.methods.client.session.update, ({ params }) => {
    events.push(["update", params.sessionId, params.update]);
    if (params.update.state === "idle") end();
  })
  .connectWith(stream(acp.ndJsonStream, child.stdin, child.stdout), conversation);
child.stdin.end();
const [status, signal] = await exited;
console.log(JSON.stringify({ ...summary, events, exit: status ?? signal }));
