"""Classification of a failed turn: why the agent could not answer, and when that ends.

Agents have no common form for it. Most answer -32603 and put the error of their model's API into
`message` or `data`; only a lost login has a code, -32000. For clients that announce
`_meta.jetbrains.air`, claude-agent-acp and codex-acp end the turn with `end_turn` and describe the
failure in its `_meta.jetbrains.air.sessionFailure`. Texts are in `test_agent_failures.py`, each
with the agent that sends it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

from conductor.error_codes import AUTHENTICATION_REQUIRED, INTERNAL_ERROR
from conductor.proxy import RequestError

__all__ = ["FailureReason", "failure_reason", "limit_end", "reported_failure"]

FailureReason: TypeAlias = Literal["rate limit", "overload", "login required"]

_SIGNS: Final[tuple[tuple[FailureReason, str], ...]] = (
    (
        "rate limit",
        r"rate.?limit|too many requests|usage.?limit|hit your ([\w'-]+ )*(limit|budget)"
        r"|reached your ([\w'-]+ )*limit|out of (\w+ )?(usage|credits)|limit (reached|exceeded)"
        r"|usage exceeded|insufficient.(quota|balance|credits)"
        r"|quota.{0,40}(exceeded|exhausted)|(exceeded|exhausted) .{0,40}quota"
        r"|resource.(has been )?exhausted|credit balance is too low|requires usage credits"
        r"|billing.error|payment required|usage allocation has been disabled|\b(429|402)\b",
    ),
    (
        "overload",
        r"overloaded|over capacity|at capacity|capacity (is )?unavailable|service.unavailable"
        r"|high demand|\b529\b|\b503\b",
    ),
    (
        "login required",
        r"authentication.(required|error|failed|expired)|unauthori[sz]ed|unauthenticated"
        r"|(invalid|incorrect).(api.key|x-api-key)|not logged in|(please run|use) /login"
        r"|(login|session) (has )?expired|(sign|log) in again|oauth_org_not_allowed"
        r"|(oauth|access|refresh|auth\w*) token (has |was |is )?(expired|(been )?revoked|invalid)"
        r"|\b401\b",
    ),
)
"""Reasons, each with what indicates it in a text in lower case."""
_PATTERNS: Final = tuple((reason, re.compile(pattern)) for reason, pattern in _SIGNS)
_NO_LIMIT: Final = re.compile(r"context.?(window|length|too long|exhausted)|max_output_tokens")
"""A limit of the conversation, not of the account: another agent would not help."""
_MAX_CHARS: Final = 20_000
"""Longer texts are cut: an error may hold a whole response."""

_EPOCH: Final = re.compile(r"(?:\||resets?_?at\W{1,8})(1\d{9}(?:\d{3})?)\b")
_SECONDS: Final = re.compile(
    r"(?:resets?_?in_?seconds|retry[-_ ]?after(?:[-_]?seconds)?|retry_?delay)\W{1,8}"
    r"(\d+(?:\.\d+)?)(ms)?"
)
_DURATION: Final = re.compile(
    r"(?:again|resets?|retry)(?: in| after) "
    r"((?:(?:and )?\d+(?:\.\d+)? ?(?:d|h|ms|m|s)[a-z]*[ ,]*)+)"
)
_PART: Final = re.compile(r"(\d+(?:\.\d+)?) ?(ms|d|h|m|s)")
_UNITS: Final = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_MOMENT: Final = re.compile(
    r"(?:resets?|again)(?: at| on)? (?:(?P<date>\d{4}-\d\d-\d\d)[ t])?"
    r"(?:(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]* (?P<day>\d{1,2})"
    r"(?:st|nd|rd|th)?,?(?: (?P<year>\d{4}),?)?(?: at)? )?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d)(?::\d\d)?)? ?(?P<half>am|pm)?(?P<zulu>z\b)?"
    r"(?: \(?(?P<zone>utc|gmt|[a-z_]+/[a-z_/]+)\)?)?"
)
_JUST_NOW: Final = timedelta(minutes=10)
_MONTHS: Final = "jan feb mar apr may jun jul aug sep oct nov dec".split()  # noqa: SIM905


def reported_failure(result: Any) -> RequestError | None:
    """The failure that the result of a prompt, or the last state of a turn, reports although the
    turn has ended as usual, as the error that it stands for."""
    found = result
    for member in ("_meta", "jetbrains", "air", "sessionFailure"):
        found = found.get(member) if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping) or found.get("severity") == "warning":
        return None
    is_login = found.get("category") == "access"
    title = str(found.get("title") or "The agent reports a failure")
    return RequestError(AUTHENTICATION_REQUIRED if is_login else INTERNAL_ERROR, title, dict(found))


def failure_reason(error: RequestError) -> FailureReason | None:
    """Why another agent should be asked; `None` for any other error."""
    text, data = _text(error), error.data if isinstance(error.data, Mapping) else {}
    if data.get("category") == "limit":  # of `sessionFailure`
        return None if "new_session" in (data.get("actions") or ()) else "rate limit"
    for reason, pattern in _PATTERNS:
        if pattern.search(text) and not _NO_LIMIT.search(text):
            return reason
    return "login required" if error.code == AUTHENTICATION_REQUIRED else None


def limit_end(error: RequestError, now: float) -> float | None:
    """When the limit ends, as far as the error says, in seconds since 1970; `now` likewise.

    A time of day without a date is the next one, or was just now: agents leave seconds out. One
    without a zone is that of this machine.
    """
    text = _text(error)
    if match := _EPOCH.search(text):
        return float(match[1]) / (1000 if len(match[1]) == 13 else 1)
    if match := _SECONDS.search(text):
        return now + float(match[1]) * (0.001 if match[2] else 1)
    if match := _DURATION.search(text):
        return now + sum(float(count) * _UNITS[unit] for count, unit in _PART.findall(match[1]))
    for match in _MOMENT.finditer(text):
        if match["half"] or match["minute"]:
            try:
                return _moment(match, now)
            except (ValueError, OSError):  # no such day, hour or zone
                continue
    return None


def _moment(match: re.Match[str], now: float) -> float:
    zone: tzinfo | None = None
    if match["zulu"] or match["zone"] in ("utc", "gmt"):
        zone = UTC
    elif match["zone"]:
        area, _, city = match["zone"].partition("/")
        zone = ZoneInfo(f"{area.title()}/{city.title()}")
    today = datetime.fromtimestamp(now, zone)
    hour = int(match["hour"])
    if match["half"]:
        hour = hour % 12 + (12 if match["half"] == "pm" else 0)
    found = today.replace(hour=hour, minute=int(match["minute"] or 0), second=0, microsecond=0)
    if match["date"]:
        year, month, day = map(int, match["date"].split("-"))
        return found.replace(year=year, month=month, day=day).timestamp()
    if match["month"]:
        month, told = _MONTHS.index(match["month"]) + 1, match["year"]
        found = found.replace(year=int(told or today.year), month=month, day=int(match["day"]))
        if not told and found < today - timedelta(days=1):
            found = found.replace(year=today.year + 1)
        return found.timestamp()
    return (found if found > today - _JUST_NOW else found + timedelta(days=1)).timestamp()


def _text(error: RequestError) -> str:
    data = error.data if isinstance(error.data, str) else json.dumps(error.data, default=str)
    return f"{error.message[:_MAX_CHARS]} {data[:_MAX_CHARS]}".lower()
