// A proxy written on the official TypeScript SDK and the `proxy/*` methods that it names.
//
//     node ts_proxy.mjs [--tag NAME]
//
// The SDK types these methods and leaves the routing to the proxy: everything is forwarded raw, so
// any protocol version passes. --tag is that of pass_proxy.py.

import * as acp from "@agentclientprotocol/sdk/unstable";
import { stream } from "./stdio.mjs";

const { proxy_initialize: INITIALIZE, proxy_successor: SUCCESSOR } = acp.PROXY_METHODS;
const name = process.argv[2] === "--tag" ? process.argv[3] : undefined;
const raw = (params) => params;
let initialized = false;

function tagPrompt(method, params) {
  if (name === undefined || method !== acp.methods.agent.session.prompt) return params;
  const tag = (block) =>
    block.type === "text" ? { ...block, text: `[${name}]${block.text}` } : block;
  return { ...params, prompt: params.prompt.map(tag) };
}

function tagUpdate(method, params) {
  const { sessionUpdate, content } = params?.update ?? {};
  if (name === undefined || sessionUpdate !== "agent_message_chunk") return params;
  const tagged = { ...content, text: `${name}>${content.text}` };
  return { ...params, update: { ...params.update, content: tagged } };
}

function initialize({ params, client, signal }) {
  initialized = true;
  const inner = { method: acp.methods.agent.initialize, params };
  return client.request(SUCCESSOR, inner, { cancellationSignal: signal });
}

function requestFromClient({ method, params, client, signal }) {
  if (!initialized) throw acp.RequestError.methodNotFound(method);
  const inner = { method, params: tagPrompt(method, params) };
  return client.request(SUCCESSOR, inner, { cancellationSignal: signal });
}

function requestFromAgent({ params: { method, params }, client, signal }) {
  return client.request(method, params, { cancellationSignal: signal });
}

async function notificationFromClient({ method, params, client }) {
  if (method.startsWith("$/")) return; // the SDK has acted on it: `signal`
  await client.notify(SUCCESSOR, { method, params });
}

async function notificationFromAgent({ params: { method, params }, client }) {
  await client.notify(method, tagUpdate(method, params));
}

acp
  .agent({ name: "ts-proxy" })
  .onRequest(INITIALIZE, raw, initialize)
  .onRequest(SUCCESSOR, raw, requestFromAgent)
  .onNotification(SUCCESSOR, raw, notificationFromAgent)
  .onRequest("*", requestFromClient)
  .onNotification("*", notificationFromClient)
  .connect(stream(acp.ndJsonStream));
