"""`v1_v2`: a client of one protocol version with an agent of the other.

`proxy` handles the messages. Which version the client has makes two cases: `of_v1_client` and
`of_v2_client` have their requests and their state, `side` what they have in common. `handshake` and
`sessions` convert requests, `open_prompts` answers the prompts of a client of version 1. `to_v1`
and `to_v2` convert the updates of a session, with a module for each part: messages, content, diffs,
plans, terminals, tool calls. `members` copies members of messages; `known_values` has what a
client of version 1 knows. All but `proxy`, `side` and `of_…` are pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proxies.v1_v2.proxy import V1V2

__all__ = ["V1V2"]


def __getattr__(name: str) -> Any:
    """Import the proxy at its first use: `known_kinds` needs other modules of this package only."""
    if name != "V1V2":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from proxies.v1_v2.proxy import V1V2

    return V1V2
