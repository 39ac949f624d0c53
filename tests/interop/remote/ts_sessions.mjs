// A client on the TypeScript SDK with several sessions at once.
//
//     node ts_sessions.mjs URL
//
// Two sessions are asked for permission at the same time, and one is answered only when both were. One
// is cancelled while the other goes on, and closed; not before it says that it waits, since over HTTP
// a cancellation may overtake the prompt. A second connection loads the other. It prints what came of it.

import * as acp from "@agentclientprotocol/sdk/unstable";
import { reach } from "./reach.mjs";

const CHOICES = { Alpha: "allow", Beta: "reject" };
const url = process.argv[2];

async function connected(conversation) {
  const told = {};
  const asked = new Set();
  let bothAsked;
  const untilBothAsked = new Promise((resolve) => (bothAsked = resolve));
  let waits;
  const untilItWaits = new Promise((resolve) => (waits = resolve));
  const { stream } = await reach(acp, url);
  await acp
    .client({ name: "ts-sessions" })
    .onNotification(acp.methods.client.session.update, ({ params: { sessionId, update } }) => {
      const [kind, what] = update.sessionUpdate.split("_");
      if (what === "message") (told[sessionId] ??= []).push(`${kind}: ${update.content.text}`);
      if (update.content?.text === "waiting") waits();
    })
    .onRequest(acp.methods.client.session.requestPermission, async ({ params }) => {
      asked.add(params.toolCall.title);
      if (asked.size === Object.keys(CHOICES).length) bothAsked();
      await untilBothAsked;
      return { outcome: { outcome: "selected", optionId: CHOICES[params.toolCall.title] } };
    })
    .connectWith(stream, async (agent) => {
      const clientCapabilities = {};
      await agent.request("initialize", { protocolVersion: 1, clientCapabilities });
      await conversation(agent, untilItWaits);
    });
  return told;
}

const prompt = async (agent, sessionId, text) => {
  const params = { sessionId, prompt: [{ type: "text", text }] };
  return (await agent.request("session/prompt", params)).stopReason;
};

const named = { cwd: "/tmp", mcpServers: [] };
const sessions = [];
const stops = { first: [], second: [] };
const told = await connected(async (agent, untilItWaits) => {
  for (const _ of "12") sessions.push((await agent.request("session/new", named)).sessionId);
  const [first, second] = sessions;
  const turns = [prompt(agent, first, "ask Alpha"), prompt(agent, second, "ask Beta")];
  stops.first.push(await turns[0]);
  stops.second.push(await turns[1]);
  const waiting = prompt(agent, first, "say waiting\nwait");
  stops.second.push(await prompt(agent, second, "stream 3 4"));
  await untilItWaits;
  await agent.notify("session/cancel", { sessionId: first });
  stops.first.push(await waiting);
  await agent.request("session/close", { sessionId: first });
});
const [first, second] = sessions;
const again = await connected(async (agent) => {
  await agent.request("session/load", { sessionId: second, ...named });
  await prompt(agent, second, "say once more");
});
const loaded = again[second];
console.log(JSON.stringify({ told: { first: told[first], second: told[second] }, stops, loaded }));
