"""The commands of a chain that can start before a client asks."""

from __future__ import annotations

import sys

from conductor.chain.launchers import local_programs
from conductor.chainfile import load

TEXT = """version: 1
proxies:
  - run: [first, a]
    env: {LEVEL: debug}
    inherit_env: false
  - use: usage
  - use: usage
    name: apart
    isolate: true
    cwd: inner
  - ssh: build.example.org
    run: [elsewhere]
  - connect: ws://127.0.0.1:1/acp
  - registry: no-such-proxy
agent:
  run: [last]
"""


def test_programs_of_this_machine_are_listed_in_order_and_others_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    (tmp_path / "chain.yaml").write_text(TEXT)

    found = list(local_programs(load(tmp_path / "chain.yaml")))

    isolated = (sys.executable, "-P", "-m", "conductor.standalone", "usage")
    assert [argv for argv, _, _ in found] == [("first", "a"), isolated, ("last",)]
    assert found[0][1] == {"LEVEL": "debug"}
    assert found[1][2] == str(tmp_path / "inner")
