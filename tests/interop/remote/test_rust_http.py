"""The Rust SDK's HTTP and WebSocket client and server (crate `agent-client-protocol-http`).

A program on that crate is named by `ACP_RUST_HTTP_PEER`; without it these tests are skipped. It is
made of the crates agent-client-protocol 5.0 (features `process`, `stdio`) and its `-http` 5.0
(`client`, `server`), axum 0.8 and tokio (`macros`, `net`, `rt-multi-thread`):

    #[tokio::main]
    async fn main() -> Result<(), Box<dyn std::error::Error>> {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        if arguments[0] == "connect" {
            let client = HttpClient::new(&arguments[1])?;
            return Ok(ConnectTo::<Agent>::connect_to(Stdio::new(), client).await?);
        }
        let agent = move || AcpAgent::from_args(arguments.clone()).expect("a command");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?.port());
        Ok(axum::serve(listener, AcpHttpServer::new(agent).into_router()).await?)
    }
"""

from __future__ import annotations

import os

import pytest

from .programs import program, served
from .summaries import remote

PEER = os.environ.get("ACP_RUST_HTTP_PEER")
pytestmark = pytest.mark.skipif(not PEER, reason="no program on it: ACP_RUST_HTTP_PEER is not set")

PAIRS = [("py_client", "ts_agent"), ("ts_client", "py_agent")]


@pytest.mark.parametrize("scheme", ["http", "ws"])
@pytest.mark.parametrize(("client", "agent"), PAIRS)
def test_the_rust_client_talks_to_serve(
    alone, check_same, converse, peer, tmp_path, scheme, client, agent
):
    with served(tmp_path, {"run": peer(agent)}) as address:
        summary = converse(peer(client), [PEER, "connect", f"{scheme}://{address}"])

    check_same(remote(summary), remote(alone(peer(client), peer(agent))))


@pytest.mark.parametrize("scheme", ["http", "ws"])
@pytest.mark.parametrize(("client", "agent"), PAIRS)
def test_the_conductor_connects_to_the_rust_server(
    alone, check_same, conductor, converse, peer, scheme, client, agent
):
    with program(PEER, *peer(agent)) as port:
        summary = converse(peer(client), [*conductor("connect"), f"{scheme}://127.0.0.1:{port}"])

    check_same(remote(summary), remote(alone(peer(client), peer(agent))))
