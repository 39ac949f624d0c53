"""Insertion of adapters: the client's when a chain is built, the agent's when it has answered.

The client's `initialize` is known when its chain is built. For the agent, only its answer tells
which adapters are needed, so a chain without any costs one look at that answer. The inserted
proxies handle `initialize` themselves, as any proxy does: the client's request goes to the first of
them, and reaches the agent a second time. An agent of another protocol version gets that request in
a new process, any other is not asked again: its answer is known. An adapter that the chain has by
its name and that needs a new process gets one in the same way.

An agent in the conductor's process is asked once. It gets those adapters for agents of its client's
version that the chain file asks for; each finds out by itself what there is to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from conductor.adapters.negotiated import Announced, announced_by_agent, announced_by_client
from conductor.adapters.table import (
    ADAPTERS,
    Adapter,
    NeededAdapter,
    adapter_settings,
    adapters_for_agent,
    adapters_for_client,
)
from conductor.chain.components import client_params
from conductor.chainfile.model import Adaptation, ComponentSpec
from conductor.error_codes import INVALID_PARAMS, INVALID_REQUEST, PROTOCOL_VERSION
from conductor.errors import StartError, describe
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload, error_to_exception, exception_to_error
from conductor.log import get_logger
from conductor.routing.component import Component
from conductor.supervision.initialization import Initialization
from conductor.supervision.supervisor import SupervisedComponent

__all__ = ["AdapterInsertion", "adapter_name", "insert_adapters"]

_REFUSALS: Final = (INVALID_REQUEST, INVALID_PARAMS, PROTOCOL_VERSION)
"""Codes with which agents refuse an `initialize` of a version that they do not know."""

log: Final = get_logger(component="conductor")


def adapter_name(name: str) -> str:
    """The name of an inserted adapter as a component."""
    return f"adapter:{name}"


def insert_adapters(
    components: list[Component],
    specs: Sequence[ComponentSpec],
    adapt: Mapping[str, Adaptation],
    make: Callable[[str, Mapping[str, Any]], Component],
) -> None:
    """Place the client's adapters before the components, and prepare the insertion of others. A
    proxy that the chain has by its name is not inserted again."""
    settings = adapter_settings(adapt, specs)
    agent, client = components[-1], announced_by_client(client_params.get())
    if isinstance(agent, SupervisedComponent):
        neighbour = _row_of(specs[-2]) if len(specs) > 1 else None
        agent.initialization.answer_interceptor = AdapterInsertion(agent, settings, make, neighbour)
    else:
        unknown = Announced(version=client.version, capabilities={})
        components[-1:-1] = _made(adapters_for_agent(client, unknown, settings), agent, make)
    components[:0] = _made(adapters_for_client(client, settings), components[0], make)


def _made(
    needed: Sequence[NeededAdapter],
    successor: Component,
    make: Callable[[str, Mapping[str, Any]], Component],
) -> list[Component]:
    """The proxies to insert before a component."""
    for each in needed:
        log.lifecycle("adapter inserted", adapter=each.adapter.name, before=successor.name)
    return [make(each.adapter.name, each.options) for each in needed]


def _row_of(spec: ComponentSpec) -> Adapter | None:
    """The row of an adapter that the chain has by its name, without the options of the row."""
    if spec.options:
        return None
    return next((row for row in ADAPTERS if row.name == spec.use), None)


class AdapterInsertion(msgspec.Struct, eq=False):
    """`Initialization.answer_interceptor` of the agent. `make` returns a proxy by its name and
    options, not started."""

    agent: SupervisedComponent
    settings: Mapping[str, Adaptation]
    make: Callable[[str, Mapping[str, Any]], Component]
    neighbour: Adapter | None = None
    """The row of the proxy before the agent, if the chain has it by its name and it asks the agent
    again by itself."""
    _is_decided: bool = False

    def take_over(
        self,
        initialization: Initialization,
        call: InFlightRequest,
        params: bytes,
        result: Payload | None,
        error: Payload | None,
    ) -> bool:
        if self._is_decided or (error is not None and not _is_refusal(error)):
            return False
        client = announced_by_client(params)
        agent = None if result is None else announced_by_agent(result)
        if agent is not None and self._is_asked_again(client, agent):
            initialization.start_again()
            self.agent.client_port.neighbour.respond(call, result, None)
            return True
        needed = adapters_for_agent(client, agent, self.settings)
        if agent is None and not any(each.adapter.restarts_agent for each in needed):
            return False
        if not needed:
            return False
        self._is_decided = True
        if result is None or any(_restarts_agent(each.adapter, client, agent) for each in needed):
            initialization.start_again()
        else:
            initialization.answer_again(result)
        self._insert(call, params, needed)
        return True

    def _is_asked_again(self, client: Announced, agent: Announced) -> bool:
        row, self.neighbour = self.neighbour, None
        return row is not None and _restarts_agent(row, client, agent)

    def _insert(
        self, call: InFlightRequest, params: bytes, needed: Sequence[NeededAdapter]
    ) -> None:
        predecessor = self.agent.client_port.neighbour
        inserted: list[Component] = []
        for each in needed:
            name = each.adapter.name
            try:
                component = self.make(name, each.options)
                removable = not each.adapter.restarts_agent
                self.agent.host.insert(component, before=self.agent, removable=removable)
            except Exception as exc:
                failed = StartError(adapter_name(name), describe(exc))
                error = exc if isinstance(exc, StartError) else failed
                predecessor.respond(call, None, exception_to_error(error))
                return
            inserted.append(component)
            log.lifecycle("adapter inserted", adapter=name, before=self.agent.name)
        inserted[0].client_port.request(call, "initialize", params)


def _restarts_agent(row: Adapter, client: Announced, agent: Announced | None) -> bool:
    """Whether the agent has to be asked again; not for an adapter that is only forced."""
    return row.restarts_agent and row.is_needed(client, agent)


def _is_refusal(error: Payload) -> bool:
    return error_to_exception(error).code in _REFUSALS
