"""The chaos suite runs on what the tests of failures run on."""

import importlib.util
from pathlib import Path

_path = Path(__file__).parents[1] / "failures" / "conftest.py"
_spec = importlib.util.spec_from_file_location("failure_fixtures", _path)
assert _spec is not None
assert _spec.loader is not None
_fixtures = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_fixtures)

orphans_come_to_us = _fixtures.orphans_come_to_us
nothing_is_left = _fixtures.nothing_is_left
start = _fixtures.start
run_chain = _fixtures.run_chain
