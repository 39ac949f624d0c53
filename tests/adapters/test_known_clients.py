from __future__ import annotations

import msgspec
import pytest

from conductor.adapters.known_clients import EDITOR_REQUESTS
from conductor.adapters.negotiated import announced_by_client
from conductor.adapters.table import ADAPTERS, adapters_for_client
from conductor.chainfile.model import Adaptation
from conductor.cli.install.editors import EDITORS
from conductor.schema.convert import structure
from conductor.schema.v1 import InitializeRequest

AUTO = {row.name: Adaptation("auto") for row in ADAPTERS}


def announced(name):
    return announced_by_client(msgspec.json.encode(EDITOR_REQUESTS[name]))


@pytest.mark.parametrize("name", EDITOR_REQUESTS)
def test_each_is_a_request_of_an_editor_of_install(name):
    assert name in EDITORS
    structure(EDITOR_REQUESTS[name], InitializeRequest)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("zed", {"known_kinds", "notices"}),
        (
            "agent-shell",
            {"known_kinds", "boolean_options", "elicitation", "local_terminals", "notices"}
            | {"normalize"},
        ),
        ("acpx", {"known_kinds", "boolean_options", "elicitation", "notices", "plan_approval"}),
        (
            "codecompanion",
            {"known_kinds", "boolean_options", "elicitation", "local_terminals", "notices"}
            | {"normalize", "plan_approval", "turn_updates"},
        ),
    ],
)
def test_the_adapters_that_an_editor_gets(name, expected):
    found = {each.adapter.name for each in adapters_for_client(announced(name), AUTO)}
    assert found == expected
