"""curl as a client of Streamable HTTP: every request by hand, over each version of HTTP."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import attrs
import pytest
from support.raw_json import compact

from .programs import PATIENCE, served

JSON = "Content-Type: application/json"
EVENTS = "Accept: text/event-stream"


@attrs.frozen
class Answer:
    version: str
    status: int
    headers: dict[str, str]
    body: str


@attrs.frozen
class Curl:
    """`flags` choose the version of HTTP."""

    path: str
    url: str
    flags: tuple[str, ...]

    def __call__(self, *arguments: str) -> Answer:
        command = [*self.command(), "--include", *arguments, self.url]
        said = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
        while said.stdout.startswith("HTTP/1.1 101"):  # curl --http2 asks to upgrade
            said.stdout = said.stdout.partition("\n\n")[2]
        head, _, body = said.stdout.partition("\n\n")
        status, *lines = head.splitlines()
        version, number = status.split()[:2]
        pairs = (line.partition(": ") for line in lines)
        headers = {name.lower(): value for name, _, value in pairs}
        return Answer(version, int(number), headers, body)

    def post(self, message: object, *headers: str) -> Answer:
        named = [part for header in (JSON, *headers) for part in ("--header", header)]
        return self("--data-binary", compact(message), *named)

    def command(self) -> list[str]:
        time = ["--max-time", str(PATIENCE)]
        return [self.path, "--silent", "--show-error", "--noproxy", "*", *time, *self.flags]

    def stream(self, *headers: str) -> subprocess.Popen[str]:
        named = [part for header in (EVENTS, *headers) for part in ("--header", header)]
        command = [*self.command(), "--no-buffer", *named, self.url]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def messages(stream: subprocess.Popen[str]) -> Iterator[dict]:
    assert stream.stdout is not None
    for line in stream.stdout:
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


@pytest.fixture(
    scope="module", params=["--http1.1", "--http2-prior-knowledge", "--http2", "--http2 TLS"]
)
def curl(request, tmp_path_factory, needs) -> Iterator[Curl]:
    flag, _, tls = request.param.partition(" ")
    path, options, flags = needs("curl"), [], [flag]
    if tls:
        certificate = request.getfixturevalue("certificate")
        options = certificate.options
        flags += ["--cacert", certificate.authority]
    with served(tmp_path_factory.mktemp("chain"), None, *options) as address:
        yield Curl(path, f"http{'s' if tls else ''}://{address}/acp", tuple(flags))


def ask(id: int, method: str, **params: object) -> dict:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


@pytest.fixture
def connection(curl):
    """The header that names a connection, initialized."""
    answer = curl.post(ask(0, "initialize", protocolVersion=1, clientCapabilities={}))
    return f"Acp-Connection-Id: {answer.headers['acp-connection-id']}"


def test_the_version_that_was_asked_for_is_spoken(curl):
    answer = curl.post(ask(0, "initialize", protocolVersion=1, clientCapabilities={}))

    # Without TLS, `--http2` asks to upgrade, which hypercorn grants to requests without a body.
    modern = curl.flags[0] == "--http2-prior-knowledge" or curl.url.startswith("https")
    assert answer.version == ("HTTP/2" if modern else "HTTP/1.1")
    assert answer.status == 200
    assert json.loads(answer.body)["result"]["connectionId"] == answer.headers["acp-connection-id"]


def test_a_turn_is_posted_and_told_on_streams(curl, connection):
    with curl.stream(connection) as stream:
        created = curl.post(ask(1, "session/new", cwd="/tmp", mcpServers=[]), connection)
        session = next(messages(stream))["result"]["sessionId"]
        stream.kill()
    named = f"Acp-Session-Id: {session}"
    words = [{"type": "text", "text": "say hello"}]
    with curl.stream(connection, named) as stream:
        prompt = ask(2, "session/prompt", sessionId=session, prompt=words)
        prompted = curl.post(prompt, connection, named)
        heard = messages(stream)
        updates = [next(heard)["params"]["update"] for _ in range(2)]
        answer = next(heard)
        stream.kill()

    assert [(each.status, each.body) for each in (created, prompted)] == [(202, ""), (202, "")]
    assert updates[-1]["content"]["text"] == "hello"
    assert answer == {"jsonrpc": "2.0", "id": 2, "result": {"stopReason": "end_turn"}}


def test_a_delete_ends_the_connection_and_its_streams(curl, connection):
    with curl.stream(connection) as stream:
        assert stream.stdout is not None
        stream.stdout.readline()  # it is open
        deleted = curl("--request", "DELETE", "--header", connection)
        rest = stream.stdout.read()

    assert stream.returncode == 0
    assert (deleted.status, rest.strip()) == (202, "")
    assert curl("--request", "DELETE", "--header", connection).status == 404
