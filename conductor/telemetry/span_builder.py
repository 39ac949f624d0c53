"""Spans of the records of a trace, one after the other.

One trace per prompt turn, and one for each other request of the client:

    invoke_agent AGENT                    the prompt on its first hop, until the turn ends
      session/prompt COMPONENT            on each further hop, below the hop before
        execute_tool NAME                 a tool call, from its first update to its last
          session/request_permission …    requests of the agent, per hop as well
        tools/call NAME                   MCP over ACP
        restart COMPONENT                 from its failure to the end of its restart
        bypass COMPONENT                  its failure, after which the chain goes on without it

A request with a context that `propagation` wrote has its ids. Without one, the SDK makes them, and
hops are linked by the recorded causes, or to the same request one hop before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import attrs
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Span, SpanContext, SpanKind, Tracer

from conductor import __version__
from conductor.acp import PROMPT, SESSION_SETTING_METHODS, SESSION_SETUP_METHODS
from conductor.acp.turns import Turns
from conductor.setting_forms import current_value
from conductor.telemetry.attributes import (
    Attributes,
    code_attributes,
    permission_outcome,
    request_attributes,
)
from conductor.telemetry.propagation import CHAIN_ENDED, below, context_of, own_parent
from conductor.telemetry.turn import Turn, fail, nanoseconds
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

_SCOPE: Final = "acp-conductor"
_PERMISSION: Final = "session/request_permission"
_FAILED, _RESTARTED, _BYPASSED = "component failed", "component restarted", "component bypassed"
_EVENT_LEVELS: Final = frozenset({"info", "warning", "error"})


@attrs.define(eq=False)
class _Open:
    """A request without an answer, or a prompt whose turn runs."""

    record: RequestRecord
    span: Span
    parent: SpanContext | None
    ended: float = 0.0
    """When it was answered; its handlers end a moment later."""


class _GivenIds(RandomIdGenerator):
    """The ids that `propagation` gave to the span that is started next, or new ones."""

    given: SpanContext | None = None

    def generate_trace_id(self) -> int:
        return super().generate_trace_id() if self.given is None else self.given.trace_id

    def generate_span_id(self) -> int:
        given, self.given = self.given, None
        return super().generate_span_id() if given is None else given.span_id


class SpanBuilder:
    """Takes the records of a trace in order; starts and ends spans of the SDK. Those of answered
    requests end with the batch of records: their handlers end a moment later."""

    def __init__(self, processor: SpanProcessor, captures_content: bool = False) -> None:
        """`captures_content`: whether spans have prompts, answers, and arguments and results of
        tools."""
        own = Resource({"service.name": _SCOPE, "service.version": __version__})
        self._ids = _GivenIds()
        self.provider: TracerProvider = TracerProvider(
            resource=Resource.create().merge(own).merge(OTELResourceDetector().detect()),
            shutdown_on_exit=False,
            id_generator=self._ids,
        )
        self.provider.add_span_processor(processor)
        self._captures = captures_content
        self._chains: dict[str, _Chain] = {}

    def add(self, records: Iterable[Record]) -> None:
        """Start and end spans by these records."""
        for record in records:
            chain = self._chains.get(record.chain)
            if chain is None:
                tracer = self.provider.get_tracer(_SCOPE, __version__)
                chain = self._chains[record.chain] = _Chain(tracer, self._ids, self._captures)
            chain.add(record)
            if isinstance(record, LogRecord) and record.event == CHAIN_ENDED:
                chain.end(record.time)
                del self._chains[record.chain]
        for chain in self._chains.values():
            chain.end_answered()

    def end(self, time: float) -> None:
        """End what is open: the recording has ended."""
        for chain in self._chains.values():
            chain.end(time)


@attrs.define(eq=False)
class _Chain:
    """The spans of one chain."""

    tracer: Tracer
    ids: _GivenIds
    captures: bool
    agent: Attributes = attrs.field(factory=lambda: {"gen_ai.agent.name": "agent"})
    """Attributes of the agent, from the header and its `initialize` result."""
    open: dict[int, _Open] = attrs.field(factory=dict)
    """By number of the record."""
    answered: dict[int, _Open] = attrs.field(factory=dict)
    """Requests that were answered in this batch of records, by number of the request."""
    turns: dict[str, Turn] = attrs.field(factory=dict)
    """By session, as `models`."""
    models: dict[str, str] = attrs.field(factory=dict)
    hop: Turns[int] = attrs.field(factory=lambda: Turns[int](2))
    """When turns run, at the client; by number of the prompt's record."""
    restarts: dict[str, Span] = attrs.field(factory=dict)
    """By component."""

    def add(self, record: Record) -> None:
        match record:
            case RequestRecord():
                self._request(record)
            case ResponseRecord():
                self._response(record)
            case NotificationRecord(method="session/update"):
                self._update(record)
            case NotificationRecord(method="session/cancel", hop=0, session=str(session)):
                self.hop.of(session).cancel(record.time)
            case HandlerRecord(message=int(n)) if (found := self._span_of(n)) is not None:
                found.span.set_attributes(code_attributes(record))
            case LogRecord():
                self._log(record)
            case TraceHeader():
                agents = [each.name for each in record.components if each.label == "Agent"]
                self.agent = _agent(agents[-1] if agents else record.chain) | self.agent

    def end_answered(self) -> None:
        for each in self.answered.values():
            each.span.end(nanoseconds(each.ended))
        self.answered.clear()

    def end(self, time: float) -> None:
        """End what is open."""
        self.end_answered()
        for turn in self.turns.values():
            turn.end(time, {})
        for span in [*(each.span for each in self.open.values()), *self.restarts.values()]:
            fail(span, "unanswered", "it had not ended when the chain ended")
            span.end(nanoseconds(time))

    # -- records -----------------------------------------------------------------------------------

    def _request(self, record: RequestRecord) -> None:
        session = record.session or ""
        turn = self.turns.get(session)
        if record.method != PROMPT or record.protocol != "acp":
            self._start(record, _name(record))
        elif turn is not None:
            turn.inner = self._start(record, _name(record))
        else:
            name = f"invoke_agent {self.agent['gen_ai.agent.name']}"
            span = self._start(record, name, SpanKind.SERVER)
            span.set_attributes({"gen_ai.operation.name": "invoke_agent", **self.agent})
            if session in self.models:
                span.set_attribute("gen_ai.request.model", self.models[session])
            self.turns[session] = Turn(record, span, self.tracer, self.captures)
            self.hop.of(session).prompt_sent(record.n, record.time)

    def _response(self, record: ResponseRecord) -> None:
        if not record.is_error and isinstance(record.payload, dict):
            self._learn(record)
        found = self.open.get(record.request)
        if found is None:
            return
        found.span.set_attribute("acp_conductor.response.size", record.size)
        _set_error(found.span, record)
        turn = self.turns.get(record.session or "")
        if turn is not None and turn.request is found.record:
            self._turn_answered(turn, record)
            return
        if record.method == _PERMISSION and not record.is_error:
            outcome = permission_outcome(found.record.params, record.payload)
            found.span.set_attribute("acp_conductor.permission.outcome", outcome)
        self._close(record.request, record.time)
        self._end_replaced(found.span.get_span_context(), record)

    def _close(self, n: int, time: float) -> None:
        """The span of a request ends at this time."""
        found = self.answered[n] = self.open.pop(n)
        found.ended = time

    def _end_replaced(self, span: SpanContext, record: ResponseRecord) -> None:
        """A component was inserted while this request was open, and the request sent again through
        it: end the span of the first, unanswered copy."""
        for n, each in list(self.open.items()):
            parent = None if each.parent is None else each.parent.span_id
            if (each.record.method, parent) == (record.method, span.span_id):
                del self.open[n]
                each.span.set_attribute("acp_conductor.replaced", True)
                each.span.end(nanoseconds(record.time))

    def _turn_answered(self, turn: Turn, record: ResponseRecord) -> None:
        """End the turn with the answer to its prompt, unless the agent reports its end later."""
        result = record.payload if isinstance(record.payload, dict) else {}
        ended = self.hop.of(record.session or "").prompt_answered(
            record.request,
            record.time,
            accepted=not record.is_error,
            stop_reason=result.get("stopReason"),
            report=result,
        )
        if ended is not None or record.is_error:
            self._end_turn(turn, record.time, result if ended is None else ended.report)

    def _end_turn(self, turn: Turn, time: float, result: dict[str, Any]) -> None:
        del self.turns[turn.request.session or ""]
        turn.end(time, result)
        self._close(turn.request.n, time)

    def _update(self, record: NotificationRecord) -> None:
        session = record.session or ""
        turn = self.turns.get(session)
        update = record.params.get("update") if isinstance(record.params, dict) else None
        if not isinstance(update, dict):
            return
        if update.get("sessionUpdate") == "config_option_update":
            self._learn_model(session, update)
        if turn is not None:
            turn.update(record, update)
        if record.hop != 0 or update.get("sessionUpdate") != "state_update":
            return
        turns = self.hop.of_agent(session)
        ended = None if turns is None else turns.take(update, record.time)
        if turn is not None and ended is not None and turn.request.n in ended.prompts:
            self._end_turn(turn, record.time, update)

    def _log(self, record: LogRecord) -> None:
        component = record.component or ""
        if record.event == _FAILED:
            self.restarts[component] = self._restart(record)
        elif record.event in (_RESTARTED, _BYPASSED) and component in self.restarts:
            span = self.restarts.pop(component)
            if record.event == _BYPASSED:
                span.update_name(f"bypass {component}")
            span.end(nanoseconds(record.time))
        found = None if record.message is None else self._span_of(record.message)
        if found is not None and record.level in _EVENT_LEVELS:
            fields: Attributes = {
                name: value
                for name, value in record.fields.items()
                if isinstance(value, str | int | float)
            }
            fields |= {"acp_conductor.component": component, "level": record.level}
            found.span.add_event(record.event, fields, nanoseconds(record.time))

    # -- spans -------------------------------------------------------------------------------------

    def _restart(self, record: LogRecord) -> Span:
        turn = next(iter(self.turns.values()), None)
        span = self.tracer.start_span(
            f"restart {record.component}",
            below(None if turn is None else turn.root.get_span_context()),
            attributes={
                "acp_conductor.chain": record.chain,
                "acp_conductor.component": record.component or "",
            },
            start_time=nanoseconds(record.time),
        )
        fail(span, "component_failed", str(record.fields.get("error", "")))
        return span

    def _start(self, record: RequestRecord, name: str, kind: SpanKind = SpanKind.CLIENT) -> Span:
        """Start the span of a request: with the ids of the context that the conductor wrote, or
        below another span."""
        params = record.params if isinstance(record.params, dict) else {}
        parent: SpanContext | None = None
        context = context_of(params.get("_meta"))
        own = own_parent(context) if record.toward == "agent" else None
        if own is not None:
            self.ids.given = context
            is_remote = record.hop == 0
            parent = SpanContext(context.trace_id, own, is_remote, context.trace_flags)
        elif (before := self._before(record)) is None and context.is_valid:
            parent = context
        elif (outer := before or self._sent_within(record, params)) is not None:
            parent = outer.get_span_context()
        span = self.tracer.start_span(
            name,
            below(parent),
            kind,
            request_attributes(record),
            start_time=nanoseconds(record.time),
        )
        self.open[record.n] = _Open(record, span, parent)
        return span

    def _before(self, record: RequestRecord) -> Span | None:
        """The span of the same request one hop before, if it is known."""
        cause = None if record.cause is None else self._span_of(record.cause)
        if cause is not None and cause.record.method == record.method:
            return cause.span
        key = record.session, record.method, record.sender
        for each in reversed(self.open.values()):
            before = each.record
            is_same = (before.session, before.method, before.receiver) == key
            if is_same and before.sender != record.receiver:
                return each.span
        return None

    def _sent_within(self, record: RequestRecord, params: dict[str, Any]) -> Span | None:
        """The span of the tool call, of the handled message or of the turn that a request belongs
        to."""
        turn = self.turns.get(record.session or "")
        if turn is None and record.session is None and record.protocol == "mcp":
            turn = next(iter(self.turns.values())) if len(self.turns) == 1 else None
        tool = None if turn is None else turn.tool_of(params)
        handled = None if record.cause is None else self._span_of(record.cause)
        if tool is None and handled is not None:
            return handled.span
        return tool or (None if turn is None else turn.inner)

    def _span_of(self, n: int) -> _Open | None:
        return self.open.get(n) or self.answered.get(n)

    def _learn(self, record: ResponseRecord) -> None:
        """Learn agent and model from responses to `initialize`, session set-ups and settings."""
        session = record.session or ""
        if record.method == "initialize":
            match record.payload:
                case {"agentInfo": {"name": str(name)}} | {"info": {"name": str(name)}}:
                    self.agent |= _agent(name)
        elif record.method == "session/set_model" and record.request in self.open:
            params = self.open[record.request].record.params
            if isinstance(params, dict):
                self._learn_model(session, {"models": {"currentModelId": params.get("modelId")}})
        elif record.method in SESSION_SETUP_METHODS | SESSION_SETTING_METHODS:
            self._learn_model(session, record.payload)

    def _learn_model(self, session: str, told: Any) -> None:
        model = current_value("model", told)
        if isinstance(model, str):
            self.models[session] = model


def _agent(name: str) -> Attributes:
    return {"gen_ai.agent.name": name, "gen_ai.provider.name": name}


def _name(record: RequestRecord) -> str:
    if record.protocol == "mcp":
        name = record.params.get("name") if isinstance(record.params, dict) else None
        is_named = record.method in ("tools/call", "prompts/get") and isinstance(name, str)
        return f"{record.method} {name}" if is_named else record.method
    return f"{record.method} {record.receiver}"


def _set_error(span: Span, record: ResponseRecord) -> None:
    if record.cancelled:
        span.set_attribute("acp_conductor.cancelled", True)
    if record.is_error:
        error = record.payload if isinstance(record.payload, dict) else {}
        code = str(error.get("code"))
        span.set_attribute("rpc.response.status_code", code)
        fail(span, code)
