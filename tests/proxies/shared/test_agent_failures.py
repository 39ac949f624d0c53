"""Texts of real agents, with the source of each."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from conductor.proxy import RequestError
from proxies.shared.agent_failures import failure_reason, limit_end

NOW = datetime(2026, 11, 28, 14, 20, tzinfo=UTC).timestamp()


def utc(*parts):
    return datetime(*parts, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "reason", "end"),
    [
        # Claude Code, older and 2.1: the first part is a prefix of `USAGE_LIMIT_ERROR_PREFIXES`.
        ("Claude AI usage limit reached|1753088400", "rate limit", 1753088400),
        ("You've hit your session limit · resets 3pm (UTC)", "rate limit", utc(2026, 11, 28, 15)),
        # Seconds are left out: it ends within this minute, not tomorrow.
        ("session limit reached · resets 2:20pm (UTC)", "rate limit", utc(2026, 11, 28, 14, 20)),
        (
            "You've hit your weekly limit · resets Nov 30, 5pm (Europe/Berlin)",
            "rate limit",
            utc(2026, 11, 30, 16),
        ),
        ("You've reached your Fable limit.", "rate limit", None),
        ("You're out of extra usage · resets 1:30am (UTC)", "rate limit", utc(2026, 11, 29, 1, 30)),
        ("You're out of usage credits. /model to switch models.", "rate limit", None),
        ("Your org is out of usage · add funds to continue", "rate limit", None),
        ("Your usage allocation has been disabled by your admin", "rate limit", None),
        ("You've hit your team's shared budget. Run /usage-credits", "rate limit", None),
        ("Credit balance is too low", "rate limit", None),
        (
            "spend limit reached (daily; resets 2026-12-08 00:00 UTC)",
            "rate limit",
            utc(2026, 12, 8),
        ),
        ('API Error (529 {"type":"overloaded_error"})', "overload", None),
        ("The API is at capacity — this is usually temporary.", "overload", None),
        ("Invalid API key · Please run /login", "login required", None),
        ("Login expired · Run /login to sign in again", "login required", None),
        ("Not logged in · Please run /login", "login required", None),
        # codex 0.1xx
        (
            "You've hit your usage limit. Upgrade to Plus, or try again at Dec 3rd, 2026 9:15 AM.",
            "rate limit",
            datetime(2026, 12, 3, 9, 15).timestamp(),
        ),
        ("Rate limit reached for o3. Please try again in 28.5s.", "rate limit", NOW + 28.5),
        ("Quota exceeded. Check your plan and billing details.", "rate limit", None),
        ("Selected model is at capacity. Please try a different model.", "overload", None),
        ("Your access token could not be refreshed. Please log out and sign in again.",
         "login required", None),
        # Gemini CLI 0.61, qwen 0.24
        ("Usage limit reached for gemini-3-pro. Access resets at 3:04 PM UTC.", "rate limit",
         utc(2026, 11, 28, 15, 4)),
        ("You have exhausted your capacity on this model. Your quota will reset after 16h36m4s.",
         "rate limit", NOW + 16 * 3600 + 36 * 60 + 4),
        ("got status: 429 Too Many Requests", "rate limit", None),
        ("Resource has been exhausted (e.g. check quota).", "rate limit", None),
        ("The model is overloaded. Please try again later.", "overload", None),
        ('{"status": "RESOURCE_EXHAUSTED", "retryDelay": "34s"}', "rate limit", NOW + 34),
        # opencode 1.18
        ("5 hour usage limit reached. It will reset in 2 hours 5 minutes. To continue using",
         "rate limit", NOW + 7500),
        ("Free usage exceeded, subscribe to Go", "rate limit", None),
        ("Provider is overloaded", "overload", None),
        # vibe 2.26
        ("Rate limit exceeded for mistral (model: devstral).", "rate limit", None),
        # APIs: headers and members that agents pass on in `data`
        ('{"status": 429, "headers": {"retry-after": "120"}}', "rate limit", NOW + 120),
        ('{"error":{"type":"usage_limit_reached","resets_in_seconds":1800}}', "rate limit",
         NOW + 1800),
        ('{"errorKind": "rate_limit", "resetsAt": 1796000000}', "rate limit", 1796000000),
        # No limit of the account
        ("Context too long for mistral. The context window has 200000 tokens.", None, None),
        ("A turn is already running", None, None),
        ("file 14290.txt has 5030 lines", None, None),
    ],
)  # fmt: skip
def test_texts_of_agents_are_told_apart(text, reason, end):
    for error in (RequestError(-32603, text), RequestError(-32603, "Internal error", {"m": text})):
        assert failure_reason(error) == reason
        assert limit_end(error, NOW) == end


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        # claude-agent-acp 0.101, codex-acp 2.6: `data` for clients that are not JetBrains'
        (RequestError(-32603, "x", {"errorKind": "overloaded"}), "overload"),
        (RequestError(-32603, "x", {"errorKind": "billing_error"}), "rate limit"),
        (RequestError(-32603, "x", {"errorKind": "authentication_failed"}), "login required"),
        (RequestError(-32603, "x", {"codexErrorInfo": "usageLimitExceeded"}), "rate limit"),
        (RequestError(-32603, "x", {"codexErrorInfo": "serverOverloaded"}), "overload"),
        (RequestError(-32000, "something"), "login required"),
        (RequestError(-32002, "Resource not found", {"uri": "a"}), None),
    ],
)
def test_codes_and_kinds_of_agents_are_told_apart(error, reason):
    assert failure_reason(error) == reason
