// ts_agent.mjs behind the TypeScript SDK's own HTTP and WebSocket server. Prints its port.

import { createServer } from "node:http";
import { AcpServer } from "@agentclientprotocol/sdk/experimental/server";
import {
  createNodeHttpHandler,
  createNodeWebSocketUpgradeHandler,
} from "@agentclientprotocol/sdk/experimental/node";
import { WebSocketServer } from "ws";
import { app } from "./ts_agent.mjs";

const acp = new AcpServer({ agent: app });
const server = createServer(createNodeHttpHandler(acp));
const sockets = new WebSocketServer({ noServer: true });
server.on("upgrade", createNodeWebSocketUpgradeHandler(acp, sockets));
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
