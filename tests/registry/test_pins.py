"""Pins: the digest changes with what is installed, and with nothing else."""

from __future__ import annotations

import msgspec
import pytest

from conductor.errors import RegistryError
from conductor.registry import pins
from conductor.registry.pins import (
    BinaryPin,
    BinaryTarget,
    NpxPin,
    UvxPin,
    current_platform,
)

NPX = NpxPin("n", "1.0.0", "sha512-x", {"node_modules/n": {"integrity": "sha512-x"}})
UVX = UvxPin("u", "1.0.0", "3.12", ("u==1.0.0 --hash=sha256:0",))


def test_arguments_and_environment_do_not_change_the_digest():
    assert msgspec.structs.replace(NPX, args=("--acp",), env={"A": "b"}).digest == NPX.digest
    assert msgspec.structs.replace(UVX, args=("--acp",), env={"A": "b"}).digest == UVX.digest


@pytest.mark.parametrize(
    ("pin", "change"),
    [
        (NPX, {"packages": {"node_modules/n": {"integrity": "sha512-y"}}}),
        (NPX, {"scripts": True}),
        (UVX, {"requirements": ("u==1.0.0 --hash=sha256:1",)}),
        (UVX, {"python": "3.13"}),
        (UVX, {"scripts": True}),
    ],
)
def test_other_packages_have_another_digest(pin, change):
    assert msgspec.structs.replace(pin, **change).digest != pin.digest


def test_the_archive_for_another_platform_lists_the_platforms():
    pin = BinaryPin("1.0.0", {"linux-x86_64": BinaryTarget("https://a/b.tgz", "./b")})

    with pytest.raises(RegistryError, match="windows-x86_64; it has: linux-x86_64"):
        pin.target("b", "windows-x86_64")


@pytest.mark.parametrize(
    ("system", "machine", "expected"),
    [
        ("linux", "x86_64", "linux-x86_64"),
        ("darwin", "arm64", "darwin-aarch64"),
    ],
)
def test_platforms_are_named_as_in_the_registry(monkeypatch, system, machine, expected):
    monkeypatch.setattr(pins.sys, "platform", system)
    monkeypatch.setattr(pins.os, "uname", lambda: type("uname", (), {"machine": machine}))

    assert current_platform() == expected
