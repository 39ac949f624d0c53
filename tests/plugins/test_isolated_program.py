"""The program of an isolated plugin."""

from __future__ import annotations

import os

from conductor.chainfile.model import ComponentSpec
from conductor.plugins.isolated_program import isolated_program
from conductor.plugins.isolation import as_isolated_process

ALONE = ComponentSpec(name="usage", use="usage", isolate=True, inherit_env=False, env={"A": "1"})


def test_a_plugin_without_the_environment_still_has_the_path():
    assert isolated_program(ALONE).environment(os.environ) == {
        "A": "1",
        "PATH": os.environ["PATH"],
    }


def test_the_chain_starts_the_same_program():
    program, component = isolated_program(ALONE), as_isolated_process(ALONE, "proxy")

    assert (program.run, program.env) == (component.run, component.env)
    assert component.use is None
