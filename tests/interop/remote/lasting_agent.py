"""The test agent, whose sessions last as long as the server: another connection can load them."""

from __future__ import annotations

from typing import Any

import attrs

from conductor.testing.agent import TestAgent

SESSIONS: dict[str, Any] = {}


@attrs.define(eq=False)
class LastingAgent(TestAgent):
    def __attrs_post_init__(self) -> None:
        self._sessions = SESSIONS
