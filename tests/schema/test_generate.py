"""The generated files are up to date, and importing them is cheap."""

from __future__ import annotations

import json
import subprocess
import sys

from conductor.schema import common, generate, v1, v2


def test_regeneration_changes_nothing() -> None:
    stale = [p.name for p, text in generate.outputs().items() if p.read_text("utf-8") != text]
    assert stale == []


def test_types_that_both_versions_have_alike_are_the_same_classes() -> None:
    assert v1.TextContent is v2.TextContent is common.TextContent
    assert v1.ContentBlock != v2.ContentBlock  # version 2 has skills
    assert v1.EmbeddedResource is not v2.EmbeddedResource  # icons of resources
    assert {*common.__all__} <= {*v1.__all__} & {*v2.__all__}


def test_package_imports_no_types_and_types_import_no_cattrs() -> None:
    code = (
        "import sys, json, conductor.schema as s\n"
        "types = ('conductor.schema.common', 'conductor.schema.v1', 'conductor.schema.v2')\n"
        "a = [m for m in types if m in sys.modules]\n"
        "s.params_type('session/prompt', 1)\n"
        "import conductor.schema.convert\n"
        "b = [m for m in ('cattrs', 'conductor.schema.v2', 'trio') if m in sys.modules]\n"
        "print(json.dumps([a, b]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[], []]
