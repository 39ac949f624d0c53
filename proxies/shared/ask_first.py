"""A question to the user before something is done for the agent, as the agent itself would ask.

Proxies between the one that asks and the client see it as a permission request of the agent, with
path or command: `permissions` can answer it by rules.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

from conductor.error_codes import INVALID_REQUEST
from conductor.proxy import Proxy, RequestError, Session

__all__ = ["ask_first"]

_ids: Iterator[int] = itertools.count(1)
_OPTIONS: Final = (
    {"optionId": "allow", "name": "Allow", "kind": "allow_once"},
    {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
)


async def ask_first(
    proxy: Proxy, name: str, session: Session, call: Mapping[str, Any], refusal: str
) -> None:
    """Ask about a tool call (`title`, `kind`, …). Raises `RequestError` if the user refuses."""
    asked = {
        "sessionId": session.id,
        "toolCall": {"toolCallId": f"conductor-{name}-{next(_ids)}", **call},
        "options": _OPTIONS,
    }
    try:
        result = await proxy.client.request("session/request_permission", asked)
    except RequestError as exc:
        raise RequestError(exc.code, f"{name}: the client did not ask the user: {exc}") from None
    outcome = result.get("outcome") if isinstance(result, dict) else None
    if not isinstance(outcome, dict) or outcome.get("optionId") != "allow":
        raise RequestError(INVALID_REQUEST, f"{name}: {refusal}")
