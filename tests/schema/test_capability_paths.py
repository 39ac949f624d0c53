"""Paths of the capabilities of a client."""

from __future__ import annotations

from conductor.schema.capability_paths import client_capability_paths


def test_objects_and_their_members_of_both_versions_are_named():
    paths = client_capability_paths()

    assert {"fs", "fs.writeTextFile", "terminal", "auth.terminal", "elicitation.form"} <= paths
    assert {"nes.searchAndReplace", "session.configOptions.boolean"} <= paths
    assert not any("_meta" in path for path in paths)
