// A relay on the official TypeScript SDK: what somebody would write today who has no conductor.
//
//     node sdk_relay.mjs AGENT ARG…
//
// Untyped: it forwards methods and params as they are, which is the cheapest way that the SDK has.

import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const stream = (output, input) => acp.ndJsonStream(Writable.toWeb(output), Readable.toWeb(input));
const [command, ...args] = process.argv.slice(2);
const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
let client;

const { agent } = acp
  .client({ name: "relay" })
  .onRequest("*", ({ method, params }) => client.request(method, params))
  .onNotification("*", ({ method, params }) => client.notify(method, params))
  .connect(stream(child.stdin, child.stdout));

const connection = acp
  .agent({ name: "relay" })
  .onRequest("*", ({ method, params }) => agent.request(method, params))
  .onNotification("*", ({ method, params }) => agent.notify(method, params))
  .connect(stream(process.stdout, process.stdin));
client = connection.client;
await connection.closed;
child.stdin.end();
