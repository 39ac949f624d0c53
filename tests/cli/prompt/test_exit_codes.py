"""Exit codes by stop reason."""

from __future__ import annotations

import pytest

from conductor.cli.prompt.run import exit_code_of


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("end_turn", 0),
        ("error", 1),
        ("refusal", 10),
        ("max_tokens", 11),
        ("max_turn_requests", 12),
        ("cancelled", 13),
        ("_of_an_extension", 14),
        (None, 14),
    ],
)
def test_each_stop_reason_has_an_exit_code(reason, code):
    assert exit_code_of(reason) == code
