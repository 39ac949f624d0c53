"""Notices for clients that support them, messages for others."""

import json

import pytest

from conductor.routing.notices import Notices
from conductor.schema import v1, v2
from conductor.schema.convert import structure

PRESENTS = b'{"protocolVersion":1,"clientCapabilities":{"session":{"notices":{}}}}'


def sent(notices, *args, **keys):
    return json.loads(notices.params("s1", *args, **keys))


def test_a_client_with_the_capability_gets_a_notice():
    params = sent(Notices.of(PRESENTS, 1), "p failed", "the chain goes on", severity="error")

    assert params == {
        "sessionId": "s1",
        "update": {
            "sessionUpdate": "notice",
            "severity": "error",
            "title": "[acp-conductor] p failed",
            "description": "the chain goes on",
        },
    }
    assert type(structure(params, v1.SessionNotification).update) is v1.Notice


@pytest.mark.parametrize("initialize", [b"{}", PRESENTS])
def test_characters_that_cannot_be_encoded_are_left_out(initialize):
    params = Notices.of(initialize, 1).params("s1", "\udcff failed: caf\xe9", "no \ud83d")

    assert "? failed: café" in params.decode()
    assert "no ?" in params.decode()


def test_a_long_text_is_cut():
    params = Notices.of(b"{}", 1).params("s1", "p failed: " + "x" * 1_000_000, "the chain goes on")

    assert len(params) < 10_000
    text = json.loads(params)["update"]["content"]["text"]
    assert text.startswith("\n\n[acp-conductor] p failed: xxx")
    assert text.endswith("…; the chain goes on\n\n")


def test_in_version_2_every_client_is_sent_notices():
    params = sent(Notices.of(b"{}", 2), "p failed")

    assert params["update"]["sessionUpdate"] == "notice"
    assert "description" not in params["update"]
    assert type(structure(params, v2.UpdateSessionNotification).update) is v2.Notice


@pytest.mark.parametrize(
    "initialize",
    [
        None,
        b"{}",
        b'{"clientCapabilities":{"session":{}}}',
        b'{"clientCapabilities":{"session":{"notices":null}}}',
        b'{"clientCapabilities":{"session":{"notices":true}}}',
        b'{"clientCapabilities":7}',
    ],
)
def test_any_other_client_gets_a_message(initialize):
    params = sent(Notices.of(initialize, 1), "p failed", "the chain goes on")

    assert params["update"] == {
        "sessionUpdate": "agent_message_chunk",
        "content": {"type": "text", "text": "\n\n[acp-conductor] p failed; the chain goes on\n\n"},
    }
