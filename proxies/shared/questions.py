"""Questions to the user, as permission requests: as the agent itself would ask."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from conductor.error_codes import INVALID_REQUEST
from conductor.proxy import Proxy, RequestError, Session

__all__ = ["ask_first", "choose"]

_ids: Iterator[int] = itertools.count(1)
_OPTIONS: Final = (
    {"optionId": "allow", "name": "Allow", "kind": "allow_once"},
    {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
)


async def ask_first(
    proxy: Proxy, name: str, session: Session, call: Mapping[str, Any], refusal: str
) -> None:
    """Ask about a tool call (`title`, `kind`, …). Raises `RequestError` if the user refuses. For
    proxies between this one and the client, it is a permission request of the agent, with path or
    command: `permissions` can answer it by rules."""
    if await choose(proxy, name, session, call, _OPTIONS) != "allow":
        raise RequestError(INVALID_REQUEST, f"{name}: {refusal}")


async def choose(
    proxy: Proxy,
    name: str,
    session: Session,
    call: Mapping[str, Any],
    options: Sequence[Mapping[str, Any]],
) -> str | None:
    """Let the user choose one of the options of a permission request; returns its id, `None` if
    there is no choice. Raises `RequestError` with the name of the proxy."""
    asked = {
        "sessionId": session.id,
        "toolCall": {"toolCallId": f"conductor-{name}-{next(_ids)}", **call},
        "options": options,
    }
    try:
        result = await proxy.client.request("session/request_permission", asked)
    except RequestError as exc:
        raise RequestError(exc.code, f"{name}: the client did not ask the user: {exc}") from None
    outcome = result.get("outcome") if isinstance(result, dict) else None
    chosen = outcome.get("optionId") if isinstance(outcome, dict) else None
    return chosen if chosen in [each["optionId"] for each in options] else None
