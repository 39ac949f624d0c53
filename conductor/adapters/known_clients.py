"""Clients that are known to mis-handle something that they do not announce. Pure.

They are recognized by `clientInfo`. A table in Python, not a file: it is looked at in each start.
"""

from __future__ import annotations

import fnmatch
import re
from typing import Final, Literal, TypeAlias

import msgspec

from conductor.adapters.negotiated import Announced

__all__ = ["KNOWN_CLIENTS", "Behaviour", "KnownClient", "is_known_to"]

Behaviour: TypeAlias = Literal[
    "refuse_late_updates", "lose_late_questions", "hide_plans", "options_by_kind", "loose_set_ups"
]
"""`refuse_late_updates`: an update outside of a turn is shown as an error, or lost.
`lose_late_questions`: a permission request outside of a turn is neither shown nor answered.
`hide_plans`: a permission request is shown without its content.
`options_by_kind`: of the options of a permission request, one of each kind can be chosen.
`loose_set_ups`: declarations of MCP servers are sent as the user has written them, and an empty
list as an object or null."""


class KnownClient(msgspec.Struct, frozen=True, kw_only=True):
    """Clients of a name, and what they are known to do."""

    name: str
    """A glob for the name in `clientInfo`; upper and lower case are the same. Empty: clients that
    do not tell their name."""
    behaviour: frozenset[Behaviour]
    since: str | None = None
    """The first version with it."""
    until: str | None = None
    """The first version without it."""

    def matches(self, client: Announced) -> bool:
        if not fnmatch.fnmatchcase(client.name.lower(), self.name.lower()):
            return False
        version = _numbers(client.program_version)
        late_enough = self.since is None or version >= _numbers(self.since)
        return late_enough and (self.until is None or version < _numbers(self.until))


KNOWN_CLIENTS: Final = (
    # 0.57.1: each update between turns is a box "Out of turn" with its JSON
    # (xenodium/agent-shell#678). Until 0.4x it became part of the next turn (#345). Since 0.61.1 it
    # is shown above the prompt (tried with 0.74.3).
    KnownClient(name="*agent-shell*", behaviour=frozenset({"refuse_late_updates"}), until="0.61.1"),
    # 19.22.0: what comes between turns is dropped; an option is a key of its kind, labelled by the
    # kind, and content other than a diff is not shown (tried).
    KnownClient(
        name="codecompanion*",
        behaviour=frozenset(
            {"refuse_late_updates", "lose_late_questions", "hide_plans", "options_by_kind"}
        ),
    ),
    # Their users declare MCP servers in Lua or Lisp, and get what they write: `env = {K = "v"}` is
    # an object, an empty table `{}`, `nil` null.
    KnownClient(name="codecompanion*", behaviour=frozenset({"loose_set_ups"})),
    KnownClient(name="*agent-shell*", behaviour=frozenset({"loose_set_ups"})),
    # 0.1.15, 0.19.1: asks with the title alone, for yes or no: the first option of a kind (tried).
    KnownClient(name="acpx", behaviour=frozenset({"hide_plans", "options_by_kind"})),
    # avante.nvim of August 2026 tells no name: each option has a button, but what is sent is the
    # last one of its kind (read).
    KnownClient(name="", behaviour=frozenset({"options_by_kind"})),
)


def is_known_to(client: Announced, behaviour: Behaviour) -> bool:
    """Whether a client is known for a behaviour."""
    return any(behaviour in each.behaviour for each in KNOWN_CLIENTS if each.matches(client))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("-")[0]))
