"""This machine in the words of the registry."""

from __future__ import annotations

import pytest

from conductor.registry import platform
from conductor.registry.platform import current_platform


@pytest.mark.parametrize(
    ("system", "machine", "expected"),
    [
        ("linux", "x86_64", "linux-x86_64"),
        ("darwin", "arm64", "darwin-aarch64"),
        ("win32", "AMD64", "windows-x86_64"),
    ],
)
def test_platforms_are_named_as_in_the_registry(monkeypatch, system, machine, expected):
    monkeypatch.setattr(platform.sys, "platform", system)
    monkeypatch.setattr(platform.os, "uname", lambda: type("uname", (), {"machine": machine}))

    assert current_platform() == expected
