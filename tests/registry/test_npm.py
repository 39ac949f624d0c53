"""Packages of npm: names, programs, checksums; installed for real in test_real_packages.py."""

from __future__ import annotations

import pytest

from conductor.errors import RegistryError
from conductor.registry.npm import (
    _check_integrity,
    _needed,
    _program,
    script_packages,
    split_package,
)
from conductor.registry.pins import NpxPin


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pi-acp", ("pi-acp", "latest")),
        ("pi-acp@0.0.34", ("pi-acp", "0.0.34")),
        ("@scope/name", ("@scope/name", "latest")),
        ("@scope/name@1.2.3-beta.1", ("@scope/name", "1.2.3-beta.1")),
        ("@scope/name@next", ("@scope/name", "next")),
    ],
)
def test_a_package_has_a_name_and_a_version(text, expected):
    assert split_package(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "-g", "../x", "x@../y", "git+https://example.org/x.git", "x@npm:y", "x@file:/etc"),
        *("x@.git", "x y", "@scope", "user/repository"),
    ],
)
def test_what_is_no_package_of_the_registry_is_refused(text):
    with pytest.raises(RegistryError, match="is not the name of an npm package"):
        split_package(text)


def pin(package="@scope/name", **own):
    return NpxPin(package, "1.0.0", "sha512-x", {f"node_modules/{package}": own})


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        ({"other": "./cli.js"}, "cli.js"),
        ({"name": "dist/name.js", "helper": "h.js"}, "dist/name.js"),
        ({"one": "./cli", "two": "./cli"}, "cli"),
    ],
)
def test_the_program_is_the_one_that_npx_runs(commands, expected):
    assert _program(pin(bin=commands)) == expected


@pytest.mark.parametrize(
    "commands", [{}, {"a": "a.js", "b": "b.js"}, {"name": "../x"}, {"name": "/bin/sh"}]
)
def test_a_package_without_a_program_of_its_name_is_refused(commands):
    with pytest.raises(RegistryError, match="has no program 'name'"):
        _program(pin(bin=commands))


def test_a_package_without_checksum_is_refused():
    bundled = {"node_modules/a/node_modules/b": {"inBundle": True}}
    _check_integrity({"node_modules/a": {"integrity": "sha512-x"}, **bundled})

    with pytest.raises(RegistryError, match="no checksum for @scope/git"):
        _check_integrity({"node_modules/@scope/git": {"resolved": "git+ssh://…"}})


def test_packages_with_installation_scripts_are_named():
    assert script_packages(pin(hasInstallScript=True)) == ["@scope/name"]
    assert script_packages(pin()) == []


def test_optional_packages_that_npm_did_not_find_are_not_pinned():
    known = {
        path: {} for path in ("node_modules/a", "node_modules/a/node_modules/b", "node_modules/c")
    }
    optional = {"b": "1", "c": "1", "for-another-platform": "1"}
    entry = {"version": "1", "license": "MIT", "optionalDependencies": optional}

    assert _needed("node_modules/a", entry, known) == {
        "version": "1",
        "optionalDependencies": {"b": "1", "c": "1"},
    }
    assert _needed("node_modules/c", entry, known)["optionalDependencies"] == {"c": "1"}
