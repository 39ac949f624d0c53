from __future__ import annotations

from conductor.proxy.mcp_server_names import McpServerNames, server_ids

NOTES = {"type": "acp", "name": "notes", "serverId": "s1"}
OLD = {"type": "acp", "name": "old", "id": "s2"}


def test_a_server_is_named_by_its_id_or_that_of_a_connection():
    names = McpServerNames()
    names.declare({"mcpServers": [NOTES, OLD, {"name": "other", "command": "x"}, 3]})
    names.connect({"acpId": "s2"}, {"connectionId": "c2"})
    names.connect({"serverId": "s1"}, None)

    assert names.name_for({"serverId": "s1"}) == "notes"
    assert names.name_for({"connectionId": "c2"}) == "old"
    assert names.name_for({"connectionId": "c1"}) == names.name_for({}) == ""


def test_what_has_ended_is_forgotten():
    names = McpServerNames()
    names.declare({"mcpServers": [NOTES, OLD]})
    for server, connection in (("s1", "c1"), ("s2", "c2"), ("s2", "c3")):
        names.connect({"serverId": server}, {"connectionId": connection})
    names.disconnect({"connectionId": "c2"})
    names.forget(["s1"])

    found = [names.name_for({"connectionId": each}) for each in ("c1", "c2", "c3")]
    assert found == ["", "", "old"]
    assert names.name_for({"serverId": "s1"}) == ""


def test_only_ids_that_were_unknown_are_returned():
    names = McpServerNames()

    assert names.declare({"mcpServers": [NOTES]}) == ["s1"]
    assert names.declare({"mcpServers": [NOTES, OLD]}) == ["s2"]


def test_ids_are_those_of_servers_over_acp():
    assert server_ids([NOTES, OLD, {"name": "x"}, None]) == ["s1", "s2"]
