"""Dispatcher: calls a plugin's handlers and answers their requests.

Every request that reaches a handler is answered exactly once, however the handler ends (lane rules
5 to 7). If the plugin ends first, `scheduler` answers; it also decides when a
handler runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias

import attrs
import msgspec
import trio

from conductor.acp import SESSION_END_METHODS, SESSION_SETUP_METHODS, session_id_of
from conductor.errors import (
    LocalProtocolError,
    RequestCancelled,
    RequestError,
    StartError,
)
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.json_object import join_members, object_members
from conductor.jsonrpc.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    Payload,
    encode_error,
    error_to_exception,
    exception_to_error,
)
from conductor.jsonrpc.notification_batch import SESSION_UPDATE
from conductor.plugins.failures import (
    FailureLog,
    call_plugin,
    contain_failure,
    request_error_in,
    split_failure,
)
from conductor.plugins.handler_call import HandlerCall, ResponseState, current_handler_call
from conductor.plugins.lane import LaneNotification, LaneRequest, LaneResponse
from conductor.plugins.plugin_port import CANCELLED_ERROR, PluginPort
from conductor.proxy.annotations import RawMessage
from conductor.proxy.base import Agent, Plugin, Proxy
from conductor.proxy.conversion import decode_params, encode, invalid_params
from conductor.proxy.handlers import version_fit
from conductor.proxy.middleware import Handler
from conductor.proxy.misfits import passes_misfit
from conductor.proxy.peers import DeferredAnswer
from conductor.proxy.sessions import chain_info, forget_session, mark_sessions_open
from conductor.routing.proxy_meta import restarted_sessions
from conductor.schema import needed_result

__all__ = ["Dispatcher"]

_MAX_HANDLED_BYTES: Final = 64 * 1024 * 1024
"""Bytes of requests of one peer that handlers are working on: they keep the params. A request over
it is refused, unless it is the only one."""
_TOO_MANY_BYTES: Final = encode_error(
    INVALID_REQUEST, "open requests have 64 MiB: wait until one of them is answered"
)
_STATE_MEMBERS: Final = ("sessionUpdate", "state", "stopReason")
"""The members of a `state_update` without its texts."""
_SESSIONS: Final = SESSION_SETUP_METHODS | SESSION_END_METHODS
_Reply: TypeAlias = tuple[bytes | None, bytes | None]
"""A raw result or a raw error."""


def _bare_state(item: LaneNotification) -> bytes | None:
    """The params of a session's state alone, or `None` if it is another message.

    Version 2: no turn ends for the client without it, so it is sent even if its handler failed.
    """
    try:
        members = object_members(item.params or b"")
        update = object_members(members["update"])
        session = members["sessionId"]
    except (ValueError, KeyError):
        return None
    bare = {name: update[name] for name in _STATE_MEMBERS if update.get(name, b"")[:1] == b'"'}
    if bare.get("sessionUpdate") != b'"state_update"' or "state" not in bare:
        return None
    return join_members({"sessionId": session, "update": join_members(bare)})


def _is_of_own_request(
    refusal: RequestError, item: LaneRequest, answer: LaneResponse | None
) -> bool:
    """Whether a handler has asked the client for what the client does not announce, and did not
    catch the error: nothing in it names the plugin."""
    data = refusal.data
    lacks = isinstance(data, dict) and "capability" in data and data.get("method") != item.method
    return lacks and (answer is None or answer.error is None)


@attrs.define(eq=False, repr=False)
class Dispatcher:
    """Runs the handlers of one plugin. `request` sends a handler's request and waits."""

    name: str
    plugin: Plugin
    request: Callable[..., Awaitable[bytes]]
    abort: Callable[[PluginPort, LaneRequest, bool], None]
    """Takes a request that the plugin will not answer, and whether the agent may have got it."""
    use_handlers: Callable[[Sequence[Handler]], None]
    """Takes the handlers that run from now on."""
    start_timeout: float
    """In seconds, for the handler of `initialize`."""
    failures: FailureLog
    running: dict[InFlightRequest, HandlerCall] = attrs.field(factory=dict, init=False)
    """Requests with a running handler, and deferred ones until they are answered."""
    _ending: bool = attrs.field(default=False, init=False)

    def notification_failed(
        self, handler_call: HandlerCall, item: LaneNotification, exc: BaseException
    ) -> None:
        """Handle an exception of a notification handler; re-raises what is not its failure."""
        port = handler_call.port
        if (
            handler_call.message is None  # it could not be read
            and isinstance(exc, ValueError)
            and passes_misfit(
                self.plugin, handler_call.handler, item.params, exc, sender=port.sender(item.method)
            )
        ):
            port.forward_unchanged(item)
            return

        def failed(failure: BaseException) -> None:
            always = item.method == "session/cancel"
            passes = (always or self.plugin.on_error == "pass") and not handler_call.forwarded
            detail = None
            if passes:
                detail = "it was passed on unchanged"
            elif not handler_call.forwarded:
                is_update = item.method == SESSION_UPDATE
                detail = "what it could not handle is not shown" if is_update else "it is dropped"
            self._report(handler_call, item.method, item.params, failure, detail)
            if passes:
                port.forward_unchanged(item)
            elif not handler_call.forwarded and (state := _bare_state(item)) is not None:
                port.forward_unchanged(msgspec.structs.replace(item, params=state))

        contain_failure(exc, failed)

    async def run_request(self, handler_call: HandlerCall, item: LaneRequest) -> None:
        """Run the handler of a request, and answer it."""
        call, port = item.call, handler_call.port
        if call.cancelled:
            port.neighbour.respond(call, None, CANCELLED_ERROR)
            return
        size = len(item.params or b"")
        if port.handled_bytes and port.handled_bytes + size > _MAX_HANDLED_BYTES:
            port.neighbour.respond(call, None, _TOO_MANY_BYTES)
            return
        handler_call.response_state = response_state = ResponseState(call, self.request)
        if item.method == "initialize":
            response_state.keep, response_state.time_limit = self._keep, self.start_timeout
            response_state.start_clock()
        self.running[call] = handler_call
        port.handled_bytes += size
        reply: _Reply | None = None
        try:
            with response_state.scope as scope:
                result = await handler_call.start(self.plugin)
                if item.method == "initialize":
                    await self._call_restart_hook(item.params)
                if response_state.on_cancelled is None:
                    reply = self._reply(handler_call, response_state, item, result)
            if scope.cancelled_caught and not response_state.answered:
                if self._ending:
                    self._abort(handler_call)
                elif trio.current_time() >= scope.deadline:
                    seconds = f"{self.start_timeout:g} s (start_timeout)"
                    reply = self._not_started(f"it did not answer `initialize` within {seconds}")
                else:
                    reply = None, CANCELLED_ERROR
        except BaseException as exc:
            failure, passing = split_failure(exc)
            try:
                if failure is not None:
                    reply = self._failure_reply(handler_call, response_state, item, failure)
                if passing is not None:
                    reply = None
                    self._abort(handler_call)
                    raise passing from None
            finally:
                del failure, passing  # a reference cycle: exception, traceback, frame
        finally:
            port.handled_bytes -= size
            if reply is None and response_state.on_cancelled and not response_state.answered:
                handler_call.message = None  # it may be large
            else:
                del self.running[call]
            if reply is not None and not response_state.answered:
                response_state.answered = True
                if reply[0] is not None and item.method in _SESSIONS:
                    self._track_session(item, reply[0])
                if (got := response_state.answer) is not None and got.result is not None:
                    call.forwarded_as = got.call, got.result
                port.neighbour.respond(call, *reply)
                if reply[1] is None and handler_call.after_answer:
                    await self._run_after_answer(handler_call, item)

    async def _run_after_answer(self, handler_call: HandlerCall, item: LaneRequest) -> None:
        for function, args in handler_call.after_answer:
            try:
                await function(*args)
            except BaseException as exc:
                contain_failure(exc, partial(self._report, handler_call, item.method, item.params))

    async def observe(self, handler_call: HandlerCall, message: RawMessage) -> None:
        """Show a message to the observer; the message is forwarded even if the observer fails."""
        try:
            await handler_call.handler.function(self.plugin, message)
        except BaseException as exc:
            contain_failure(
                exc, partial(self._log_failure, handler_call, message.method, message.payload)
            )

    def cancel(self, call: InFlightRequest) -> None:
        """Cancel a request that is deferred or has a running handler (lane rule 6)."""
        handler_call = self.running.get(call)
        if handler_call is None or (state := handler_call.response_state) is None:
            return
        if state.on_cancelled is not None and not state.answered:
            self._call_on_cancelled(state)
        elif handler_call.awaited:
            for waited_for in handler_call.awaited:
                waited_for.cancel()
        elif not handler_call.resumes:  # else it has what it waited for
            state.scope.cancel()

    def defer(self, on_cancelled: Callable[[], None]) -> DeferredAnswer:
        """See `Plugin.defer`."""
        handler_call = current_handler_call.get()
        state = None if handler_call is None or handler_call.done else handler_call.response_state
        if handler_call is None or state is None or state.on_cancelled is not None:
            raise LocalProtocolError("defer() is for the handler of a request, once")
        state.on_cancelled, port = on_cancelled, handler_call.port

        def answer(result: Any, error: Any) -> None:
            raw_result, raw_error = encode(result), encode(error)
            if self._take(handler_call):
                port.neighbour.respond(state.call, raw_result, raw_error)

        return answer

    def answer_for(
        self, call: InFlightRequest, result: Payload | None, error: Payload | None
    ) -> bool:
        """Answer a request in the plugin's place, and cancel its handler; False if it has neither
        a handler nor is deferred."""
        handler_call = self.running.get(call)
        if handler_call is None or (state := handler_call.response_state) is None:
            return False
        if self._take(handler_call):
            self._call_on_cancelled(state)
            handler_call.port.neighbour.respond(call, result, error)
            state.scope.cancel()
        return True

    def abort_deferred(self) -> None:
        """Abort the deferred requests: the plugin has ended."""
        for each in list(self.running.values()):
            if each.response_state is not None and each.response_state.on_cancelled is not None:
                self._abort(each)

    def _abort(self, handler_call: HandlerCall) -> None:
        item, state = handler_call.item, handler_call.response_state
        if state is not None and type(item) is LaneRequest and self._take(handler_call):
            is_deferred, is_agent = state.on_cancelled is not None, isinstance(self.plugin, Agent)
            self.abort(handler_call.port, item, handler_call.forwarded or is_deferred or is_agent)

    def _take(self, handler_call: HandlerCall) -> bool:
        """Whether the request is still to be answered; the caller does that now."""
        state = handler_call.response_state
        if state is None or state.answered:
            return False
        state.answered = True
        if handler_call.done:
            del self.running[state.call]
        return True

    def _call_on_cancelled(self, state: ResponseState) -> None:
        def failed(exc: BaseException) -> None:
            self.failures.report("callback of defer() failed", exc, method=state.call.method)

        if state.on_cancelled is not None:
            call_plugin(failed, state.on_cancelled)

    def cancel_awaiting_handlers(self) -> None:
        """Cancel handlers that wait for a response: the chain ends."""
        self._ending = True
        for handler_call in list(self.running.values()):
            if handler_call.awaited and handler_call.response_state is not None:
                handler_call.response_state.scope.cancel()

    def _reply(
        self,
        handler_call: HandlerCall,
        response_state: ResponseState,
        item: LaneRequest,
        result: Any,
    ) -> _Reply:
        """The reply to a request whose handler has returned."""
        raw = handler_call.handler.write(result)
        if item.method == "initialize":
            if not handler_call.forwarded:  # an agent
                self._keep(item.params, raw)
            elif isinstance(self.plugin, Proxy) and (
                reply := self._fit_version(response_state.answer)
            ):
                return reply
        if raw is None:
            self._check_nothing(item.method, response_state.answer)
        return raw or b"null", None

    def _check_nothing(self, method: str, answer: LaneResponse | None) -> None:
        """Raise `LocalProtocolError` for a handler that has returned no result, unless that is the
        answer to the forwarded request, or a request of the method needs none."""
        if answer is not None and answer.result == b"null":
            return
        if answer is not None and answer.result is not None:
            raise LocalProtocolError(
                f"the handler of {method!r} returned nothing, although the request was "
                f"answered: write `return await forward(…)`"
            )
        if needed := needed_result(method, self.plugin.protocol_version):
            raise LocalProtocolError(
                f"the handler of {method!r} returned nothing, not a {needed}: write `return …`"
            )

    def _failure_reply(
        self,
        handler_call: HandlerCall,
        response_state: ResponseState,
        item: LaneRequest,
        exc: BaseException,
    ) -> _Reply | None:
        """The reply to a request after its handler raised (lane rules 5 and 7)."""
        if response_state.answered:
            if not isinstance(request_error_in(exc), RequestCancelled):  # of its `forward`
                self._log_failure(handler_call, item.method, item.params, exc)
            return None
        if (
            handler_call.message is None  # it could not be read
            and isinstance(exc, ValueError)
            and self.plugin.on_error == "fail"
        ):
            return None, invalid_params(item.method, exc, handler_call.port.sender(item.method))
        refusal = request_error_in(exc)
        if refusal is not None:
            if _is_of_own_request(refusal, item, response_state.answer):
                self._log_failure(handler_call, item.method, item.params, exc)
            try:
                return None, exception_to_error(refusal)
            except BaseException as broken:  # the plugin's `data`: its `__repr__`, for example
                exc = broken
        mistake = self.failures.error_of_peer(handler_call, exc)
        if mistake is None:
            passes = self.plugin.on_error == "pass"
            detail = "the request goes on without it" if passes else None
            self._log_failure(handler_call, item.method, item.params, exc, detail)
        if self.plugin.on_error == "pass":
            if response_state.answer is not None:
                return response_state.answer.result, response_state.answer.error
            if not handler_call.forwarded:
                response_state.answered = True  # by the next component
                handler_call.port.forward_unchanged(item)
                return None
        if mistake is not None:
            return None, mistake
        title = self.failures.title(exc, item.method, handler_call.handler.location)
        # Some clients, such as Toad, show `reason` and not the message.
        data = {"component": self.name, "plugin": type(self.plugin).__name__, "reason": title}
        return None, encode_error(INTERNAL_ERROR, title, data)

    # -- initialize --------------------------------------------------------------------------------

    def _keep(self, params: bytes | None, result: bytes | None) -> None:
        """Keep members of the request and of its answer, for `Plugin.protocol_version` and
        others."""
        info = chain_info(self.plugin)
        with suppress(ValueError):  # the peer answers it
            info.asked(decode_params(params, dict))
            info.answered(decode_params(result, dict))

    async def _call_restart_hook(self, params: bytes | None) -> None:
        """Call `on_restart` at the end of the handshake, if the params have a restart marker."""
        sessions, hook = restarted_sessions(params), getattr(self.plugin, "on_restart", None)
        if sessions is not None and hook is not None:
            await hook(sessions)

    def _fit_version(self, answer: LaneResponse | None) -> _Reply | None:
        """Leave out handlers of a proxy for another version of the protocol than the negotiated
        one.

        `answer` is the response to the forwarded request. Returns the reply to the client if it is
        not that of the handler: an error of a required proxy, and the unchanged response if the
        proxy is bypassed.
        """
        cls, version = type(self.plugin), self.plugin.protocol_version
        fit = version_fit(cls, version)
        if fit.handlers is self.plugin._acp_handlers:
            return None
        if self.plugin._acp_runtime.required and not fit.is_complete:
            return self._not_started(fit.problem(cls, version))
        if fit.is_bypassed:
            self.failures.log.warning(
                "proxy is bypassed: it is not for this version of the protocol",
                plugin=cls.__name__,
                versions=sorted(cls.versions or ()),
                protocol_version=version,
            )
        for handler in fit.left_out:
            self.failures.log.warning(
                "handler is left out: its type is of another version of the protocol",
                plugin=cls.__name__,
                handler=handler.location,
                method=handler.method,
                handler_version=handler.version,
                protocol_version=version,
            )
        self.use_handlers(fit.handlers)
        return (answer.result, answer.error) if fit.is_bypassed and answer is not None else None

    def _not_started(self, reason: str) -> _Reply:
        return None, exception_to_error(StartError(self.name, reason))

    # ----------------------------------------------------------------------------------------------

    def _track_session(self, item: LaneRequest, result: bytes) -> None:
        """Keep the `per_session` state of an opened session; drop that of an ended one."""
        session = session_id_of(item.params)
        if item.method in SESSION_SETUP_METHODS:
            session = session_id_of(result) or session
            mark_sessions_open(self.plugin, () if session is None else (session,))
        elif session is not None:
            forget_session(self.plugin, session)

    def _report(
        self,
        handler_call: HandlerCall,
        method: str,
        params: bytes | None,
        exc: BaseException,
        detail: str | None = None,
    ) -> None:
        """Log and tell a failure as the plugin's, or as a peer's mistake."""
        mistake = self.failures.error_of_peer(handler_call, exc)
        if mistake is None:
            self._log_failure(handler_call, method, params, exc, detail)
        elif not handler_call.forwarded:
            text = error_to_exception(mistake).message
            self.failures.tell_mistake(text, method, session_id_of(params), detail)

    def _log_failure(
        self,
        handler_call: HandlerCall,
        method: str,
        params: bytes | None,
        exc: BaseException,
        detail: str | None = None,
    ) -> None:
        handler_call.failed = True
        self.failures.report(
            "handler failed",
            exc,
            detail=detail,
            plugin=type(self.plugin).__name__,
            handler=handler_call.handler.location,
            method=method,
            session=session_id_of(params),
        )
