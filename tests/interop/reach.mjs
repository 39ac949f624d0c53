// How a client reaches its agent: a program that it starts, or a server that has a URL.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { paced, stream } from "./stdio.mjs";

/** The stream to the agent, and `ended`, which says goodbye and returns the exit status. */
export async function reach(acp, command, args) {
  if (/^(http|ws)s?:/.test(command)) return reachServer(command);
  const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
  const exited = once(child, "exit");
  const ended = async () => {
    child.stdin.end();
    const [status, signal] = await exited;
    return status ?? signal;
  };
  return { stream: stream(acp.ndJsonStream, child.stdin, child.stdout), ended };
}

async function reachServer(url) {
  const made = url.startsWith("http") ? await overHttp(url) : await overWebSocket(url);
  return { stream: paced(made), ended: async () => 0 };
}

async function overHttp(url) {
  const { createHttpStream } = await import("@agentclientprotocol/sdk/experimental/http-client");
  return createHttpStream(url);
}

async function overWebSocket(url) {
  const { createWebSocketStream } = await import("@agentclientprotocol/sdk/experimental/ws-client");
  const { WebSocket } = await import("ws");
  return createWebSocketStream(url, { WebSocket });
}
