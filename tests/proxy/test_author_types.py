"""What type checkers tell the author of a proxy: the generated types of `on` and `request`."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from support.mypy_cache import mypy_cache

ROOT = Path(__file__).parents[2]

HEAD = """
from __future__ import annotations

from typing import Any

from conductor.proxy import Forward, Proxy, RawMessage, on
from conductor.schema import v1, v2
"""

FITTING = """
class Fitting(Proxy):
    @on("session/prompt")
    async def typed(
        self, request: v1.PromptRequest, forward: Forward[v1.PromptRequest, v1.PromptResponse]
    ) -> v1.PromptResponse:
        answer = await forward(request)
        reveal_type(answer)  # R: conductor.schema.v1.PromptResponse
        return answer

    @on("session/prompt")
    async def version_2(
        self, request: v2.PromptRequest, forward: Forward[v2.PromptRequest, v2.PromptResponse]
    ) -> v2.PromptResponse:
        return await forward()

    @on("session/prompt")
    async def plain(self, params: dict[str, Any], forward: Forward) -> Any:
        return await forward(params)

    @on("session/prompt")
    async def plain_but_for_the_result(
        self, params: dict[str, Any], forward: Forward[dict[str, Any], dict[str, Any]]
    ) -> v1.PromptResponse | v2.PromptResponse:
        return v1.PromptResponse(stop_reason=(await forward())["stopReason"])

    @on("session/list")
    async def unannotated(self, request, forward):  # E: Function is missing a type annotation
        reveal_type(request)  # R: Any
        return await forward()

    @on("session/new")
    @on("session/load")
    async def raw(self, params: bytes, forward: Forward[bytes, bytes]) -> bytes:
        return await forward(params)

    @on("fs/read_text_file")
    async def answers(self, request: v1.ReadTextFileRequest) -> v1.ReadTextFileResponse:
        other = v1.ReadTextFileRequest(session_id=request.session_id, path="/other")
        read = await self.client.request(other)
        reveal_type(read)  # R: conductor.schema.v1.ReadTextFileResponse
        named = await self.client.request("_vendor/x", {}, result=v1.ReadTextFileResponse)
        reveal_type(named)  # R: conductor.schema.v1.ReadTextFileResponse
        opened = await self.agent.request(v2.NewSessionRequest(cwd="/work", mcp_servers=[]))
        reveal_type(opened)  # R: conductor.schema.v2.NewSessionResponse
        plain: dict[str, Any] = await self.agent.request("session/list", {})
        return v1.ReadTextFileResponse(content=read.content + str(plain))

    @on("session/update")
    async def update(
        self, update: v1.SessionNotification, forward: Forward[v1.SessionNotification, None]
    ) -> None:
        await forward()

    @on("_vendor/x", source="agent")
    async def extension(self, params: dict[str, Any], forward: Forward) -> list[int]:
        return [1]

    @on("*")
    async def observe(self, message: RawMessage) -> None: ...
"""

MISTAKEN = """
class Mistaken(Proxy):
    @on("session/prompt")
    async def two(
        self, request: v1.PromptRequest, forward: Forward[v1.PromptRequest, v1.PromptResponse]
    ) -> v1.PromptResponse:
        await forward(5, 6)  # E: Too many arguments
        await forward(5)  # E: incompatible type "int"; expected "PromptRequest | None"
        return await forward(request)

    @on("session/prompt")
    async def bare(self, request: v1.PromptRequest, forward: Forward) -> Any:
        return await forward(5, 6)  # E: Too many arguments

    @on("session/prompt")  # E: "SessionPromptHandler" of function cannot be
    async def other_message(self, request: v1.NewSessionRequest, forward: Forward) -> Any: ...

    @on("session/prompt")  # E: "SessionPromptHandler" of function cannot be
    async def other_result(
        self, request: v1.PromptRequest, forward: Forward
    ) -> v1.NewSessionResponse:
        raise NotImplementedError

    @on("session/prompt")  # E: "SessionPromptHandler" of function cannot be
    async def other_forward(
        self, request: v1.PromptRequest, forward: Forward[v1.PromptRequest, v1.NewSessionResponse]
    ) -> Any: ...

    @on("session/prompt")  # E: "SessionPromptHandler" of function cannot be
    async def swapped(self, forward: Forward, request: v1.PromptRequest) -> Any: ...

    @on("session/update")  # E: "SessionUpdateHandler" of function cannot be
    async def result_of_a_notification(
        self, update: v1.SessionNotification, forward: Forward
    ) -> str:
        return ""

    @on("*")  # E: "Observer" of function cannot be
    async def observer(self, message: RawMessage, forward: Forward) -> None: ...

    async def sends(self) -> None:
        await self.client.request(5)  # E: No overload variant
        read = v1.ReadTextFileRequest(session_id="s", path="/x")
        written: v1.WriteTextFileResponse = await self.client.request(read)  # E: incompatible type
"""


@pytest.mark.slow
def test_mypy_tells_what_handlers_and_requests_give_and_refuses_mistakes(tmp_path: Path) -> None:
    source = HEAD + FITTING + MISTAKEN
    author = tmp_path / "author.py"
    author.write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", author],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"MYPY_CACHE_DIR": str(mypy_cache(tmp_path / "cache"))},
    )
    assert done.stderr == ""
    told: dict[int, list[str]] = {}
    for line in done.stdout.splitlines():
        found = re.match(r"[^:]*author\.py:(\d+): (?:error|note): (.*)", line)
        if found is not None:
            told.setdefault(int(found[1]), []).append(found[2])
    for number, line in enumerate(source.splitlines(), 1):
        expected = re.search(r"# [ER]: (.*)", line)
        here = told.pop(number, [])
        if expected is None:
            assert here == [], f"line {number}: {line}"
        else:
            assert any(expected[1] in each for each in here), f"line {number}: {line}: {here}"
    assert told == {}


def test_what_fits_for_type_checkers_is_accepted_at_import(tmp_path: Path) -> None:
    author = tmp_path / "author.py"
    author.write_text(HEAD + FITTING)

    fitting = runpy.run_path(str(author))["Fitting"]

    assert {handler.method for handler in fitting._acp_handlers} >= {"session/prompt", "*"}


SLOW = (
    "conductor.schema.v1",
    "conductor.schema.v2",
    "conductor.proxy.method_types",
    "mcp",
    "pydantic",
)
"""Imports of up to half a second."""
WITH_TOOLS = f"""
import sys
from conductor.proxy import Context, Proxy, tool
class Notes(Proxy):
    @tool
    async def a(self, x: int, context: Context): ...
    def mcp_servers(self, session): ...
print(*(each for each in {SLOW} if each in sys.modules))
"""


def test_schema_types_and_the_mcp_sdk_are_not_imported_with_a_plugin() -> None:
    done = subprocess.run([sys.executable, "-c", WITH_TOOLS], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("\n", "")
