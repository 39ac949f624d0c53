"""Spans of the records of a trace, one after the other. Pure.

One trace per prompt turn, and one for each other request of the client:

    invoke_agent AGENT                    the prompt on its first hop, until the turn ends
      session/prompt COMPONENT            on each further hop, below the hop before
        execute_tool NAME                 a tool call, from its first update to its last
          session/request_permission …    requests of the agent, per hop as well
        tools/call NAME                   MCP over ACP
        restart COMPONENT                 from its failure to the end of its restart
        bypass COMPONENT                  its failure, after which the chain goes on without it

A request with a context that `propagation` wrote has its ids. Without one, ids are made here, and
hops are linked by the recorded causes, or to the same request one hop before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import attrs

from conductor.acp import PROMPT, SESSION_SETTING_METHODS, SESSION_SETUP_METHODS
from conductor.acp.turns import Turns
from conductor.setting_forms import current_value
from conductor.telemetry.attributes import (
    code_attributes,
    permission_outcome,
    request_attributes,
)
from conductor.telemetry.span import Attributes, Span, SpanEvent
from conductor.telemetry.trace_context import (
    NO_PARENT,
    Sampler,
    TraceContext,
    context_of,
    derived_id,
)
from conductor.telemetry.turn import Turn
from conductor.tracing.direction import direction
from conductor.tracing.records import (
    HandlerRecord,
    LogRecord,
    NotificationRecord,
    Record,
    RequestRecord,
    ResponseRecord,
    TraceHeader,
)

__all__ = ["SpanBuilder"]

_MAX_OPEN: Final = 10_000
"""Requests without an answer, and sessions, that are kept in mind."""
_PERMISSION: Final = "session/request_permission"
_FAILED, _RESTARTED, _ENDED = "component failed", "component restarted", "chain ended"
_BYPASSED: Final = "component bypassed"
_EVENT_LEVELS: Final = frozenset({"info", "warning", "error"})


@attrs.define(eq=False)
class _Open:
    """A request without an answer."""

    record: RequestRecord
    span: Span


@attrs.define(eq=False)
class SpanBuilder:
    """Takes the records of a trace in order; returns spans when they have ended, those of answered
    requests at the end of the batch of records: their handlers end a moment later.

    Spans have ids that the conductor wrote into their requests, or ids derived from their records.
    """

    captures_content: bool = False
    """Whether spans have prompts, answers, and arguments and results of tools."""
    sampler: Sampler = attrs.field(default=lambda parent, trace_id: True)
    """Decides about requests that have no context of their own."""
    _open: dict[int, _Open] = attrs.field(factory=dict, init=False)
    """By number of the record."""
    _turns: dict[tuple[str, str], Turn] = attrs.field(factory=dict, init=False)
    """By chain and session."""
    _hops: dict[str, Turns[int]] = attrs.field(factory=dict, init=False)
    """When the turns of each chain run, at the client; by number of the prompt's record."""
    _restarts: dict[tuple[str, str], Span] = attrs.field(factory=dict, init=False)
    """By chain and component."""
    _models: dict[tuple[str, str], str] = attrs.field(factory=dict, init=False)
    """By chain and session."""
    _runs: dict[str, tuple[float, int]] = attrs.field(factory=dict, init=False)
    """Beginning and process id of each chain: with number and time of a record they are unique."""
    _agents: dict[str, Attributes] = attrs.field(factory=dict, init=False)
    """Attributes of each chain's agent, from its `initialize` result."""
    _answered: dict[int, Span] = attrs.field(factory=dict, init=False)
    """Spans of answered requests, by number of the request: their handlers end a moment later."""

    def add(self, records: Iterable[Record]) -> Iterator[Span]:
        """The spans that have ended with these records."""
        for record in records:
            match record:
                case RequestRecord():
                    self._request(record)
                case ResponseRecord():
                    yield from self._response(record)
                case NotificationRecord(method="session/update"):
                    yield from self._update(record)
                case NotificationRecord(method="session/cancel", hop=0, session=str(session)):
                    self._hop(record.chain).of(session).cancel(record.time)
                case HandlerRecord(message=int(n)):
                    self._handler(n, record)
                case LogRecord():
                    yield from self._log(record)
                case TraceHeader():
                    self._header(record)
        yield from self._answered.values()
        self._answered.clear()

    def end(self, time: float, chain: str | None = None) -> Iterator[Span]:
        """End what is open, of one chain or of all: the chain, or its recording, has ended."""
        for key, turn in list(self._turns.items()):
            if chain in (None, key[0]):
                del self._turns[key]
                yield from turn.end(time, None)
        for n, each in list(self._open.items()):
            if chain in (None, each.record.chain):
                del self._open[n]
                yield _unanswered(each.span, time)
        for key, span in list(self._restarts.items()):
            if chain in (None, key[0]):
                del self._restarts[key]
                yield _unanswered(span, time)
        for table in (self._models, self._agents, self._runs, self._hops):
            for name in [n for n in table if chain in (None, n if isinstance(n, str) else n[0])]:
                del table[name]  # type: ignore[arg-type]

    # -- records -----------------------------------------------------------------------------------

    def _header(self, record: TraceHeader) -> None:
        self._runs[record.chain] = record.time, record.pid
        agents = [each.name for each in record.components if each.label == "Agent"]
        name = agents[-1] if agents else record.chain
        known: Attributes = {"gen_ai.agent.name": name, "gen_ai.provider.name": name}
        self._agents[record.chain] = known | self._agents.get(record.chain, {})

    def _request(self, record: RequestRecord) -> None:
        span = Span(_name(record), "", "", None, record.time, "client")
        self._place(span, record)
        span.attributes = request_attributes(record)
        session = record.chain, record.session or ""
        turn = self._turns.get(session)
        if record.method == PROMPT and record.protocol == "acp":
            if turn is None and len(self._turns) < _MAX_OPEN:
                agent = self._agents.get(record.chain, {"gen_ai.agent.name": "agent"})
                span.name = f"invoke_agent {agent['gen_ai.agent.name']}"
                span.kind = "server"
                span.attributes |= {"gen_ai.operation.name": "invoke_agent"} | agent
                if session in self._models:
                    span.attributes["gen_ai.request.model"] = self._models[session]
                self._turns[session] = Turn(record, span, self.captures_content)
                self._hop(record.chain).of(record.session or "").prompt_sent(record.n, record.time)
                return
            if turn is not None:
                turn.inner = span
        if len(self._open) < _MAX_OPEN:
            self._open[record.n] = _Open(record, span)

    def _response(self, record: ResponseRecord) -> Iterator[Span]:
        if not record.is_error and isinstance(record.payload, dict):
            self._learn(record)
        turn = self._turns.get((record.chain, record.session or ""))
        if turn is not None and turn.request.n == record.request:
            yield from self._turn_answered(turn, record)
            return
        found = self._open.pop(record.request, None)
        if found is None:
            return
        span = found.span
        span.end = record.time
        span.attributes["acp_conductor.response.size"] = record.size
        _set_error(span, record)
        if record.method == _PERMISSION and not record.is_error:
            outcome = permission_outcome(found.record.params, record.payload)
            span.attributes["acp_conductor.permission.outcome"] = outcome
        self._answered[record.request] = span
        yield from self._end_replaced(span, record)

    def _end_replaced(self, span: Span, record: ResponseRecord) -> Iterator[Span]:
        """A component was inserted while this request was open, and the request sent again through
        it: end the span of the first, unanswered copy."""
        for n, each in list(self._open.items()):
            if each.span.parent_id == span.span_id and each.record.method == record.method:
                del self._open[n]
                each.span.end = record.time
                each.span.attributes["acp_conductor.replaced"] = True
                yield each.span

    def _turn_answered(self, turn: Turn, record: ResponseRecord) -> Iterator[Span]:
        """End the turn with the answer to its prompt, unless the agent reports its end later."""
        turn.root.attributes["acp_conductor.response.size"] = record.size
        result = record.payload if isinstance(record.payload, dict) else {}
        ended = (
            self._hop(record.chain)
            .of(record.session or "")
            .prompt_answered(
                record.request,
                record.time,
                accepted=not record.is_error,
                stop_reason=result.get("stopReason"),
                report=result,
            )
        )
        if ended is None and not record.is_error:
            return
        _set_error(turn.root, record)
        del self._turns[record.chain, record.session or ""]
        *others, root = turn.end(record.time, result if ended is None else ended.report)
        yield from others
        self._answered[record.request] = root

    def _update(self, record: NotificationRecord) -> Iterator[Span]:
        key = record.chain, record.session or ""
        turn = self._turns.get(key)
        update = record.params.get("update") if isinstance(record.params, dict) else None
        if not isinstance(update, dict):
            return
        if update.get("sessionUpdate") == "config_option_update":
            self._learn_model(record, update)
        if turn is not None:
            yield from turn.update(record, update)
        if record.hop != 0 or update.get("sessionUpdate") != "state_update":
            return
        turns = self._hop(record.chain).of_agent(record.session or "")
        ended = None if turns is None else turns.take(update, record.time)
        if turn is not None and ended is not None and turn.request.n in ended.prompts:
            del self._turns[key]
            yield from turn.end(record.time, update)

    def _hop(self, chain: str) -> Turns[int]:
        return self._hops.setdefault(chain, Turns(2))

    def _handler(self, n: int, record: HandlerRecord) -> None:
        span = self._span_of(n)
        if span is not None:
            span.attributes |= code_attributes(record)

    def _log(self, record: LogRecord) -> Iterator[Span]:
        key = record.chain, record.component or ""
        if record.event == _ENDED:
            yield from self.end(record.time, record.chain)
        elif record.event == _FAILED:
            self._restarts[key] = self._restart(record)
        elif record.event in (_RESTARTED, _BYPASSED) and key in self._restarts:
            span = self._restarts.pop(key)
            span.end = record.time
            if record.event == _BYPASSED:
                span.name = f"bypass {record.component}"
            yield span
        span_of = None if record.message is None else self._span_of(record.message)
        if span_of is not None and record.level in _EVENT_LEVELS:
            fields: Attributes = {
                name: value
                for name, value in record.fields.items()
                if isinstance(value, str | int | float)
            }
            fields |= {"acp_conductor.component": record.component or "", "level": record.level}
            span_of.events.append(SpanEvent(record.time, record.event, fields))

    # -- spans -------------------------------------------------------------------------------------

    def _restart(self, record: LogRecord) -> Span:
        turns = [turn for (chain, _), turn in self._turns.items() if chain == record.chain]
        span = Span(f"restart {record.component}", "", "", None, record.time)
        self._below(span, turns[0].root if turns else None, record, record.component)
        span.attributes = {
            "acp_conductor.chain": record.chain,
            "acp_conductor.component": record.component or "",
        }
        span.fail("component_failed", str(record.fields.get("error", "")))
        return span

    def _place(self, span: Span, record: RequestRecord) -> None:
        """Give the span of a request its ids."""
        params = record.params if isinstance(record.params, dict) else {}
        context = context_of(params.get("_meta"))
        if context is not None and context.is_own and direction(record) == "agent":
            span.trace_id, span.span_id = context.trace_id, context.span_id
            span.parent_id = None if context.parent == NO_PARENT else context.parent
            span.sampled = context.sampled
            span.has_remote_parent = record.hop == 0 and span.parent_id is not None
            return
        before = self._before(record)
        if before is None and context is not None:
            self._start(span, context, record, record.n)
        else:
            self._below(span, before or self._sent_within(record, params), record, record.n)

    def _below(self, span: Span, parent: Span | None, record: Record, name: object) -> None:
        """A span below another; `name` is unique among the records of its time."""
        if parent is None:
            self._start(span, None, record, name)
            return
        span.trace_id = parent.trace_id
        span.span_id = derived_id(8, parent.trace_id, parent.span_id, record.time, name)
        span.parent_id, span.sampled = parent.span_id, parent.sampled

    def _start(self, span: Span, parent: TraceContext | None, record: Record, name: object) -> None:
        """A span at the root, or below one of another program."""
        of_run = record.chain, self._runs.get(record.chain), record.time, name
        span.trace_id = derived_id(16, *of_run) if parent is None else parent.trace_id
        span.span_id = derived_id(8, *of_run)
        span.parent_id = None if parent is None else parent.span_id
        span.has_remote_parent = parent is not None
        span.sampled = self.sampler(parent, span.trace_id)

    def _before(self, record: RequestRecord) -> Span | None:
        """The span of the same request one hop before, if it is known."""
        cause = None if record.cause is None else self._span_of(record.cause)
        if cause is not None and cause.attributes["rpc.method"] == record.method:
            return cause
        if record.method == PROMPT:
            turn = self._turns.get((record.chain, record.session or ""))
            return None if turn is None else turn.inner
        key = record.chain, record.session, record.method, record.sender
        for each in reversed(self._open.values()):
            before = each.record
            is_same = (before.chain, before.session, before.method, before.receiver) == key
            if is_same and before.sender != record.receiver:
                return each.span
        return None

    def _sent_within(self, record: RequestRecord, params: dict[str, Any]) -> Span | None:
        """The span of the tool call, of the handled message or of the turn that a request belongs
        to."""
        turn = self._turns.get((record.chain, record.session or ""))
        if turn is None and record.session is None and record.protocol == "mcp":
            turns = [each for (chain, _), each in self._turns.items() if chain == record.chain]
            turn = turns[0] if len(turns) == 1 else None
        tool = None if turn is None else turn.tool_of(params)
        handled = None if record.cause is None else self._span_of(record.cause)
        return tool or handled or (None if turn is None else turn.inner)

    def _span_of(self, n: int) -> Span | None:
        if n in self._open:
            return self._open[n].span
        if n in self._answered:
            return self._answered[n]
        return next((each.root for each in self._turns.values() if each.request.n == n), None)

    def _learn(self, record: ResponseRecord) -> None:
        """Learn agent and model from responses to `initialize`, session set-ups and settings."""
        if record.method == "initialize":
            match record.payload:
                case {"agentInfo": {"name": str(name)}} | {"info": {"name": str(name)}}:
                    known = self._agents.setdefault(record.chain, {})
                    known |= {"gen_ai.agent.name": name, "gen_ai.provider.name": name}
        elif record.method == "session/set_model" and record.request in self._open:
            params = self._open[record.request].record.params
            if isinstance(params, dict):
                self._learn_model(record, {"models": {"currentModelId": params.get("modelId")}})
        elif record.method in SESSION_SETUP_METHODS | SESSION_SETTING_METHODS:
            self._learn_model(record, record.payload)

    def _learn_model(self, record: ResponseRecord | NotificationRecord, told: Any) -> None:
        key, model = (record.chain, record.session or ""), current_value("model", told)
        if isinstance(model, str) and (key in self._models or len(self._models) < _MAX_OPEN):
            self._models[key] = model


def _name(record: RequestRecord) -> str:
    if record.protocol == "mcp":
        name = record.params.get("name") if isinstance(record.params, dict) else None
        is_named = record.method in ("tools/call", "prompts/get") and isinstance(name, str)
        return f"{record.method} {name}" if is_named else record.method
    return f"{record.method} {record.receiver}"


def _set_error(span: Span, record: ResponseRecord) -> None:
    if record.cancelled:
        span.attributes["acp_conductor.cancelled"] = True
    if record.is_error:
        error = record.payload if isinstance(record.payload, dict) else {}
        code = error.get("code")
        span.attributes["rpc.response.status_code"] = str(code)
        span.fail(str(code))


def _unanswered(span: Span, time: float) -> Span:
    span.end = time
    span.fail("unanswered", "it had not ended when the chain ended")
    return span
