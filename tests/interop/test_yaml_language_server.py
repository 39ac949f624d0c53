"""Chain files in an editor: the YAML language server with the schema of docs/chain.schema.json."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.doc_snippets import ROOT

CHAINS = ROOT / "chains"
HEAD = "# yaml-language-server: $schema=../docs/chain.schema.json\nversion: 1\n"


class LanguageServer:
    """A language server at a pair of pipes: just what these tests need of its protocol."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._ids = 0
        self.ask("initialize", processId=None, rootUri=CHAINS.as_uri(), capabilities={})
        self._send(method="initialized", params={})

    def diagnostics(self, name: str, text: str) -> list[str]:
        """What the editor would underline."""
        document = {"uri": self.uri(name), "languageId": "yaml", "version": 1, "text": text}
        self._send(method="textDocument/didOpen", params={"textDocument": document})
        shown = self._until(lambda each: each.get("method") == "textDocument/publishDiagnostics")
        return [each["message"] for each in shown["params"]["diagnostics"]]

    def completions(self, name: str, line: int, column: int) -> dict[str, str]:
        """What the editor would offer, with descriptions."""
        answer = self.ask(
            "textDocument/completion",
            textDocument={"uri": self.uri(name)},
            position={"line": line, "character": column},
        )
        return {each["label"]: each.get("documentation", "") for each in answer["items"]}

    def hover(self, name: str, line: int, column: int) -> str:
        """What the editor would show at a place."""
        position = {"line": line, "character": column}
        shown = self.ask(
            "textDocument/hover", textDocument={"uri": self.uri(name)}, position=position
        )
        text: str = shown["contents"]["value"]
        return text

    def ask(self, method: str, **params: Any) -> Any:
        self._ids += 1
        self._send(id=self._ids, method=method, params=params)
        return self._until(lambda each: each.get("id") == self._ids)["result"]

    def uri(self, name: str) -> str:
        return (CHAINS / name).as_uri()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while True:
            message = self._receive()
            if "method" in message and "id" in message:  # the server asks for settings
                items = message["params"].get("items", [])
                self._send(id=message["id"], result=[None] * len(items) if items else None)
            elif wanted(message):
                return message

    def _send(self, **message: Any) -> None:
        assert self._process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        length = 0
        while header := self._process.stdout.readline().strip().lower():
            if header.startswith(b"content-length:"):
                length = int(header.partition(b":")[2])
        message: dict[str, Any] = json.loads(self._process.stdout.read(length))
        return message


@pytest.fixture(scope="module")
def server(node_peers: Path) -> Iterator[LanguageServer]:
    program = node_peers / "node_modules" / ".bin" / "yaml-language-server"
    server = LanguageServer([str(program), "--stdio"])
    yield server
    server.end()


def test_the_examples_have_no_mistakes(server: LanguageServer) -> None:
    found = {
        each.name: server.diagnostics(each.name, each.read_text()) for each in CHAINS.iterdir()
    }

    assert {name: messages for name, messages in found.items() if messages} == {}


def test_mistakes_are_underlined(server: LanguageServer) -> None:
    text = HEAD + "proxies: [{use: permissions, with: {ruls: []}}]\nagent: {use: test-agent}\n"

    assert server.diagnostics("mistaken.yaml", text) == ["Property ruls is not allowed."]


def test_names_and_options_are_completed_with_their_meaning(server: LanguageServer) -> None:
    text = HEAD + "proxies:\n  - use: \n  - use: permissions\n    with:\n      \n"
    server.diagnostics("begun.yaml", text)

    names = server.completions("begun.yaml", 3, len("  - use: "))
    assert names["redact"] == "Replace secrets by placeholders."
    options = server.completions("begun.yaml", 6, len("      "))
    assert options["dry_run"] == "forward every request, and record what the rules would have done"


def test_durations_are_offered_and_demanded_as_they_are_written(server: LanguageServer) -> None:
    text = HEAD + "agent:\n  use: test-agent\n  start_timeout: 30\n  \n"

    found = server.diagnostics("waiting.yaml", text)
    assert found == ["expected a duration such as 30s or 500ms"]
    answer = server.ask(
        "textDocument/completion",
        textDocument={"uri": server.uri("waiting.yaml")},
        position={"line": 5, "character": 2},
    )
    inserted = {each["label"]: each["insertText"] for each in answer["items"]}
    assert inserted["cancel_timeout"] == "cancel_timeout: ${1:10s}"


def test_a_list_of_proxies_begins_empty(server: LanguageServer) -> None:
    server.diagnostics("empty.yaml", HEAD)
    answer = server.ask(
        "textDocument/completion",
        textDocument={"uri": server.uri("empty.yaml")},
        position={"line": 2, "character": 0},
    )

    inserted = {each["label"]: each["insertText"] for each in answer["items"]}
    assert inserted["proxies"] == "proxies:\n  - "


def test_the_name_at_the_cursor_is_explained_before_the_others(server: LanguageServer) -> None:
    text = HEAD + "proxies:\n  - use: redact\nagent: {use: test-agent}\n"
    server.diagnostics("shown.yaml", text)

    shown = server.hover("shown.yaml", 3, len("  - use: r")).splitlines()
    listed = [line for line in shown if line.startswith("* ")]
    assert listed[0] == "* `redact`: Replace secrets by placeholders."
    assert len(listed) > 30
