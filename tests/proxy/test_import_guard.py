"""Imports of packages whose modules need each other, as those of the MCP SDK, in several threads.

A submodule is not imported after its package if another thread is importing that: it finds the
package half done.
"""

from __future__ import annotations

import sys
import threading

import pytest
import trio

from conductor.chainfile.model import ComponentSpec
from conductor.plugins.loading import load_class
from conductor.proxy.import_guard import import_in_thread

PACKAGE = """
import importing
importing.begun.set()
importing.part_ended.wait(0.5)  # as long if the part waits for this package
base = 1
import slow_package.part
"""
PART = """
import importing, sys
try:
    value = sys.modules["slow_package"].base
finally:
    importing.part_ended.set()
"""
PLUGIN = """
from conductor.proxy import Proxy
import slow_package.part

class UsesPart(Proxy):
    pass
"""


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """The event that the import of `slow_package` has begun."""
    importing = type(sys)("importing")
    importing.begun, importing.part_ended = threading.Event(), threading.Event()
    package = tmp_path / "slow_package"
    package.mkdir()
    (package / "__init__.py").write_text(PACKAGE)
    (package / "part.py").write_text(PART)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "importing", importing)
    yield importing.begun
    for name in ("slow_package", "slow_package.part"):
        sys.modules.pop(name, None)


async def test_two_connections_import_parts_of_one_package(begun, nursery):
    nursery.start_soon(import_in_thread, "slow_package")
    await trio.to_thread.run_sync(begun.wait)

    await import_in_thread("slow_package.part")

    assert sys.modules["slow_package.part"].value == 1


async def test_a_plugin_is_loaded_while_a_connection_imports_what_it_needs(
    begun, nursery, tmp_path
):
    path = tmp_path / "elsewhere" / "plugin.py"
    path.parent.mkdir()
    path.write_text(PLUGIN)
    nursery.start_soon(import_in_thread, "slow_package")
    await trio.to_thread.run_sync(begun.wait)

    cls = load_class(ComponentSpec(name="plugin", use=f"{path}:UsesPart"))

    assert cls.__name__ == "UsesPart"
    assert sys.modules["slow_package.part"].value == 1
