"""One run of `try`: the proxy between a client and the test agent, in this process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, NoReturn

import attrs
import trio

from conductor.chain.build import bridge_component, open_agent_chain
from conductor.chain.components import ChainSpec
from conductor.chain.stdio_server import exit_now
from conductor.chainfile.model import STOP_TIMEOUT, ChainFile
from conductor.cli.prompt.files import ClientFiles
from conductor.cli.terminal_text import is_coloured
from conductor.cli.trial import SIGNALS, Trial
from conductor.cli.try_proxy.report import Report, tell_started_functions
from conductor.cli.try_proxy.target import TargetError, load_target
from conductor.client.embedding import AttachedClient
from conductor.errors import ConnectionClosed, RemoteProtocolError, RequestError
from conductor.limits import Limits
from conductor.plugins.observed_plugin import ObservedPlugin
from conductor.plugins.plugin_component import PluginComponent
from conductor.proxy import Proxy
from conductor.routing.component import Component
from conductor.testing.agent import TestAgent
from conductor.testing.fakes import FULL_CAPABILITIES, FakeClient
from conductor.testing.recorded_session import RecordedAgent
from conductor.transport.process_tree import become_subreaper, kill_descendants

__all__ = ["DEFAULT_PROMPT", "TrySettings", "answer_permission", "answer_question", "run_once"]

DEFAULT_PROMPT: Final = "say hello\ntool Search\nask Edit a file"
"""Commands of the test agent: a text, a tool call, a permission request."""

_QUESTIONS: Final[dict[str, Any]] = {"elicitation": {"form": {}, "url": {}}}
_CAPABILITIES: Final[dict[int, dict[str, Any]]] = {
    1: {**FULL_CAPABILITIES, **_QUESTIONS},
    2: _QUESTIONS,
}
"""Capabilities of the client, by protocol version."""

_STOP_TIMEOUT: Final = 2.0
"""Seconds that a proxy has to end: a person waits at the terminal."""


@attrs.frozen
class TrySettings:
    """The options of `try`."""

    prompts: Sequence[str] = (DEFAULT_PROMPT,)
    options: Mapping[str, Any] = attrs.field(factory=dict)
    recording: str | None = None
    """Name or path of that of the agent; `None`: the test agent."""
    permissions: Literal["allow", "deny"] = "allow"
    version: int = 1
    timeout: float = 60.0
    """Seconds for each turn."""


def run_once(target: str, settings: TrySettings) -> NoReturn:
    """Run the prompts, print the report, and exit the process.

    Exit codes: 0 the turns ended, 1 the proxy raised an exception or a request failed, 3 the proxy
    could not be loaded or did not start, 130 interrupted.

    A proxy that is stuck ends too: each blocked wait has `settings.timeout`, the event loop
    `STOP_TIMEOUT` and the end of the chain `_STOP_TIMEOUT` seconds.
    """
    become_subreaper()
    for number in SIGNALS:
        signal.signal(number, _end_now)  # while the module of the proxy is imported
    try:
        code = _run(target, settings, Report(_print, coloured=is_coloured()))
    finally:
        kill_descendants()
    exit_now(code)


def _end_now(number: int, _: object) -> None:
    kill_descendants()
    os._exit(128 + number)


def _run(target: str, settings: TrySettings, report: Report) -> int:
    try:
        proxy = load_target(target, settings.options)
    except TargetError as exc:
        for line in exc.lines:
            report.line(line, "error")
        return 3
    name, recording = type(proxy).__name__, settings.recording
    agent = "the test agent" if recording is None else f"the recorded agent {recording}"
    report.line(f"{target}: {name}, with {agent}")
    with tell_started_functions(type(proxy), report.function_started):
        trial = Trial(ChainFile(path=target, name=name), code=3)
        trio.run(_TryRun(trial, proxy, settings, report).run)
    return trial.exit_code


@attrs.define(eq=False)
class _TryRun:
    trial: Trial
    proxy: Proxy
    settings: TrySettings
    report: Report

    async def run(self) -> None:
        trial = self.trial
        spec = ChainSpec(self._components, stop_timeout=_STOP_TIMEOUT)
        async with trial.running(FakeClient, spec, max_blocked=STOP_TIMEOUT) as attached:
            attached.client.handlers |= self._handlers()
            with trial.failing():
                await self._take_turns(attached)
            match trial.error:
                case RequestError() as error:
                    self._say_failed(error)
                case ConnectionClosed() | RemoteProtocolError() as error:
                    self.report.line(str(error), "error")
        trial.code = trial.code or int(self.report.failures > 0)

    async def _take_turns(self, attached: AttachedClient[FakeClient]) -> None:
        trial, version = self.trial, self.settings.version
        if not await trial.start(attached, _CAPABILITIES[version], version):
            return
        trial.code = 1
        if (session := await trial.open_session(attached)) is None:
            return
        for prompt in self.settings.prompts:
            busy: dict[str, dict[str, str]] = {}
            with trio.move_on_after(self.settings.timeout) as limit:
                try:
                    await attached.client.prompt_turn(session, prompt)
                except trio.Cancelled:
                    busy = {each.name: each.busy_handler() for each in attached.chain.components}
                    raise
            if limit.cancelled_caught:
                self._say_overdue(busy)
                return
        trial.code = 0

    def _say_overdue(self, busy: Mapping[str, Mapping[str, str]]) -> None:
        """Say which handlers are busy after the timeout."""
        seconds = self.settings.timeout
        self.report.line(f"no end of the turn (--timeout) within {seconds:g} s", "error")
        for name, fields in busy.items():
            if fields:
                place, method = os.path.basename(fields["handler"]), fields["method"]
                self.report.line(f"  {name} is busy in {place}, with {method}", "error")

    def _components(self) -> list[Component]:
        observed = ObservedPlugin(
            self.trial.file.name,
            self.proxy,
            "proxy",
            agent_chain_opener=open_agent_chain,
            observer=self.report,
        )
        observed.failures.listener = self.report.failed
        recording = self.settings.recording
        agent: Component = (
            PluginComponent("test-agent", TestAgent("counted"), "agent")
            if recording is None
            else RecordedAgent(recording)
        )
        return [observed, bridge_component("auto", Limits()), agent]

    def _handlers(self) -> dict[str, Callable[[Any], Any]]:
        """The client reads files, but writes none."""
        agrees = self.settings.permissions == "allow"
        return {
            "session/request_permission": partial(answer_permission, allows=agrees),
            "elicitation/create": partial(answer_question, accepts=agrees),
            "fs/read_text_file": ClientFiles(os.getcwd()).read,
            "fs/write_text_file": lambda params: {},
        }

    def _say_failed(self, exc: RequestError) -> None:
        data = exc.data if isinstance(exc.data, Mapping) else {}
        if self.report.failures == 0 or "reason" not in data:  # else it has been shown
            details = f": {data['reason']}" if "reason" in data else ""
            self.report.line(f"failed: {exc}{details}", "error")


def _print(line: str) -> None:
    try:
        print(line, flush=True)
    except BrokenPipeError:  # `| head`
        _end_now(signal.SIGPIPE, None)


_TEXTS: Final = {
    "email": "user@example.org",
    "uri": "https://example.org",
    "date": "2026-01-01",
    "date-time": "2026-01-01T00:00:00Z",
}
"""Texts of the formats that a field may have."""


def answer_permission(params: Mapping[str, Any], *, allows: bool) -> dict[str, Any]:
    """Select the first option that allows, or the first that rejects; cancel if there is none."""
    wanted = "allow" if allows else "reject"
    for option in params.get("options", ()):
        if str(option.get("kind")).startswith(wanted):
            return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}
    return {"outcome": {"outcome": "cancelled"}}


def answer_question(params: Mapping[str, Any], *, accepts: bool) -> dict[str, Any]:
    """Decline a question, or accept it: a form with the default of each field, else with its first
    choice, its minimum, or a value of its type. Optional fields without a default stay empty."""
    if not accepts:
        return {"action": "decline"}
    if params.get("mode") == "url":
        return {"action": "accept"}
    schema = params.get("requestedSchema") or {}
    fields = schema.get("properties") or {}
    required = schema.get("required") or ()
    given = [name for name in fields if name in required or "default" in fields[name]]
    return {"action": "accept", "content": {name: _value(fields[name]) for name in given}}


def _value(field: Mapping[str, Any]) -> Any:
    if "default" in field:
        return field["default"]
    choices = _choices(field)
    match field.get("type"):
        case "boolean":
            return True
        case "integer" | "number":
            return field.get("minimum", 1)
        case "array":
            return _choices(field.get("items") or {})[: field.get("minItems", 0)]
    return choices[0] if choices else _TEXTS.get(str(field.get("format")), "text")


def _choices(field: Mapping[str, Any]) -> list[Any]:
    titled = field.get("oneOf") or field.get("anyOf") or ()
    return [*(field.get("enum") or ()), *(each.get("const") for each in titled)]
