// Thinkwell's conductor, and a proxy of its dialect, on the packages @thinkwell/*.
//
//     node ts_thinkwell.mjs conductor PROXY... AGENT     commands, each one argument
//     node ts_thinkwell.mjs proxy TAG                    writes `TAG>` before each piece of text
//
// Components are marked by `initialize` with `_meta.proxy`, which is wanted back in the result.

import { createInterface } from "node:readline";
import { Conductor, fromCommands } from "@thinkwell/conductor";
import {
  PROXY_SUCCESSOR_NOTIFICATION,
  PROXY_SUCCESSOR_REQUEST,
  wrapAsProxySuccessorNotification,
  wrapAsProxySuccessorRequest,
} from "@thinkwell/protocol";

const [mode, ...rest] = process.argv.slice(2);
const send = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);

async function* messages() {
  for await (const line of createInterface({ input: process.stdin })) {
    if (line.trim()) yield JSON.parse(line);
  }
}

async function conduct() {
  const client = { send, messages: messages(), close: async () => {} };
  const conductor = new Conductor({ instantiator: fromCommands(rest) });
  await conductor.connect({ connect: async () => client });
  process.exit(0);
}

async function proxy() {
  const open = new Map();
  let number = 0;

  function forward(message, method, params) {
    if (message.id === undefined) return send({ jsonrpc: "2.0", method, params });
    open.set(++number, message);
    send({ jsonrpc: "2.0", id: number, method, params });
  }

  function tagged({ method, params }) {
    const content = params?.update?.content;
    if (params?.update?.sessionUpdate === "agent_message_chunk") {
      content.text = `${rest[0]}>${content.text}`;
    }
    return [method, params];
  }

  for await (const message of messages()) {
    if (message.method === undefined) {
      const asked = open.get(message.id);
      if (asked.method === "initialize" && asked.params._meta?.proxy && message.result) {
        message.result._meta = { ...message.result._meta, proxy: true };
      }
      send({ ...message, id: asked.id });
    } else if (message.method.startsWith("_proxy/successor/")) {
      forward(message, ...tagged(message.params));
    } else if (message.id === undefined) {
      const inner = wrapAsProxySuccessorNotification(message.method, message.params);
      forward(message, PROXY_SUCCESSOR_NOTIFICATION, inner);
    } else {
      const inner = wrapAsProxySuccessorRequest(message.method, message.params);
      forward(message, PROXY_SUCCESSOR_REQUEST, inner);
    }
  }
}

await (mode === "conductor" ? conduct() : proxy());
