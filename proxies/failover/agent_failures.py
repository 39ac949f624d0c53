"""Tells from an agent's error whether another agent should be asked. Pure.

Agents have no common code for a rate limit or an overload: most answer -32603 and put the error of
their model's API into `message` or `data`. Only a lost login has a code, -32000.
"""

from __future__ import annotations

import json
import re
from typing import Final

from conductor.error_codes import AUTHENTICATION_REQUIRED
from conductor.proxy import RequestError

__all__ = ["failure_reason"]

_SIGNS: Final = (
    (
        "rate limit",
        # Anthropic: 429 rate_limit_error; Claude Code: "You've hit your limit", "usage limit
        # reached"; OpenAI: insufficient_quota; Gemini: 429 RESOURCE_EXHAUSTED.
        r"rate.?limit|too many requests|usage.limits?\b|hit your (\w+ )?limit|insufficient.quota"
        r"|quota.(exceeded|exhausted)|exceeded your current quota|resource.(has been )?exhausted"
        r"|credit balance is too low|\b429\b",
    ),
    (
        "overload",
        # Anthropic: 529 overloaded_error; Gemini: 503 "The model is overloaded"; OpenAI: 503.
        r"overloaded|over capacity|at capacity|service.unavailable|\b529\b|\b503\b",
    ),
    (
        "login required",
        # Anthropic: 401 authentication_error, "Please run /login"; OpenAI: invalid_api_key.
        r"authentication.(required|error|failed)|unauthori[sz]ed|unauthenticated"
        r"|invalid.(api.key|x-api-key)|not logged in|(please run|use) /login"
        r"|(oauth|access|refresh) token (has )?(expired|been revoked)|\b401\b",
    ),
)
"""Reasons, each with the texts of real agents that indicate it, in lower case."""
_PATTERNS: Final = tuple((reason, re.compile(pattern)) for reason, pattern in _SIGNS)
_MAX_CHARS: Final = 20_000
"""Longer texts are cut: an error may hold a whole response."""


def failure_reason(error: RequestError) -> str | None:
    """`rate limit`, `overload` or `login required`; `None` for any other error."""
    data = error.data if isinstance(error.data, str) else json.dumps(error.data, default=str)
    text = f"{error.message[:_MAX_CHARS]} {data[:_MAX_CHARS]}".lower()
    for reason, pattern in _PATTERNS:
        if pattern.search(text):
            return reason
    return "login required" if error.code == AUTHENTICATION_REQUIRED else None
