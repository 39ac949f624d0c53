"""Packages of npm: pin all transitive packages with npm's own lock file, and install exactly them.

Installation scripts do not run, unless the component allows it (`install_scripts`): they are
programs of any package in the tree, started with the rights of the user before anything was
reviewed. `npm ci` checks the integrity of each package.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from conductor.errors import RegistryError
from conductor.files import open_regular, read_own, write_own
from conductor.json_values import decode_value
from conductor.registry.pins import NpxPin
from conductor.registry.source import PackageDistribution
from conductor.registry.store import InstalledPackage
from conductor.registry.tools import run_tool, work_directory

__all__ = ["install_npm", "pin_npm", "script_packages", "split_package"]

_NAME: Final = re.compile(r"(@[a-z0-9~][a-z0-9._~-]*/)?[A-Za-z0-9~][A-Za-z0-9._~-]*")
_VERSION: Final = re.compile(r"[\w~^+-][\w.+~^-]*", re.ASCII)
"""What begins with a dot is a directory for npm."""
_DROPPED: Final = frozenset({"license", "funding", "deprecated"})
"""Members of npm's lock file that `npm ci` does not need."""
_OPTIONS: Final = ("--no-audit", "--no-fund", "--allow-git=none")
"""For packages in git, which have no checksum, npm would run git and ssh, with the user's keys; an
old npm ignores the option."""
_SHEBANG: Final = re.compile(rb"#!\s*/usr/bin/env\s+(?:-S\s+)?(\S[^\r\n]*)")


def split_package(text: str) -> tuple[str, str]:
    """Name and version: `@scope/name@1.2.3`, the version `latest` if there is none."""
    name, at, version = text.rpartition("@")
    if not name:
        name, version = text, ""
    elif not at:
        version = ""
    if not _NAME.fullmatch(name) or (version and not _VERSION.fullmatch(version)):
        message = f"{text!r} is not the name of an npm package, such as `@scope/name@1.2.3`"
        raise RegistryError(message)
    return name, version or "latest"


def pin_npm(distribution: PackageDistribution, *, scripts: bool) -> NpxPin:
    """Resolve a package and everything that it needs; nothing is installed."""
    name, version = split_package(distribution.package)
    with work_directory() as directory:
        _write_manifest(directory, name, version)
        arguments = ["install", "--package-lock-only", "--ignore-scripts", *_OPTIONS]
        # With an empty cache: npm would go on with what it has after failed requests.
        arguments += ["--omit-lockfile-registry-resolved", f"--cache={directory / 'cache'}"]
        run_tool("npm", arguments, directory, f"{distribution.package} cannot be resolved")
        lock = decode_value(read_own(directory / "package-lock.json"))
    known = lock["packages"]
    packages = {path: _needed(path, each, known) for path, each in known.items() if path}
    _check_integrity(packages)
    own = packages[f"node_modules/{name}"]
    return NpxPin(
        package=name,
        version=own["version"],
        integrity=own["integrity"],
        packages=packages,
        args=distribution.args,
        env=distribution.env,
        scripts=scripts,
    )


def install_npm(pin: NpxPin, directory: Path) -> InstalledPackage:
    """Install the packages of a pin into a directory, and say how the program is started."""
    _write_manifest(directory, pin.package, pin.version)
    lock = {
        "name": "agent",
        "lockfileVersion": 3,
        "requires": True,
        "packages": {
            "": {"name": "agent", "dependencies": {pin.package: pin.version}},
            **pin.packages,
        },
    }
    write_own(directory / "package-lock.json", msgspec.json.encode(lock))
    arguments = ["ci", "--omit=dev", "--prefer-offline", *_OPTIONS]
    arguments += [] if pin.scripts else ["--ignore-scripts"]
    run_tool("npm", arguments, directory, f"{pin.package} {pin.version} cannot be installed")
    program = f"node_modules/{pin.package}/{_program(pin)}"
    path = directory / program
    if not path.is_file():
        raise RegistryError(f"{pin.package} {pin.version} lacks its program {program}")
    with os.fdopen(open_regular(path), "rb") as file:
        shebang = _SHEBANG.match(file.read(200))
    if shebang is not None:  # `env` would report a missing interpreter less clearly
        return InstalledPackage(program, interpreter=tuple(shebang[1].decode().split()))
    path.chmod(path.stat().st_mode | 0o700)
    return InstalledPackage(program)


def script_packages(pin: NpxPin) -> list[str]:
    """The packages with installation scripts."""
    return [
        path.rpartition("node_modules/")[2]
        for path, each in pin.packages.items()
        if each.get("hasInstallScript")
    ]


def _program(pin: NpxPin) -> str:
    """The path of the program in its package, as npx chooses it: the only one, which may have
    several names, or the one that is called as the package is."""
    commands = pin.packages[f"node_modules/{pin.package}"].get("bin") or {}
    short = pin.package.rpartition("/")[2]
    paths = list(commands.values())
    found = paths[0] if paths and paths.count(paths[0]) == len(paths) else commands.get(short)
    if not isinstance(found, str) or ".." in found.split("/") or found.startswith("/"):
        raise RegistryError(f"the npm package {pin.package} has no program {short!r}")
    return found.removeprefix("./")


def _check_integrity(packages: Mapping[str, Any]) -> None:
    """Raise unless every package has a checksum; bundled ones are covered by that around them."""
    without = [
        path
        for path, each in packages.items()
        if "integrity" not in each and not each.get("inBundle") and not each.get("link")
    ]
    if without:
        names = ", ".join(path.rpartition("node_modules/")[2] for path in without[:5])
        raise RegistryError(f"npm has no checksum for {names}: they cannot be pinned")


def _needed(path: str, package: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """An entry of npm's lock file as it is pinned.

    npm leaves out optional packages that it cannot find, such as those for other platforms, but not
    their names; `npm ci` then takes the file for incomplete.
    """
    needed = {name: value for name, value in package.items() if name not in _DROPPED}
    if optional := package.get("optionalDependencies"):
        needed["optionalDependencies"] = {
            name: version for name, version in optional.items() if _is_known(path, name, known)
        }
    return needed


def _is_known(path: str, name: str, known: Mapping[str, Any]) -> bool:
    """Whether a package finds another, in its own `node_modules` or in one around it."""
    while path:
        if f"{path}/node_modules/{name}" in known:
            return True
        path = path.rpartition("/node_modules/")[0]
    return f"node_modules/{name}" in known


def _write_manifest(directory: Path, name: str, version: str) -> None:
    manifest = {"name": "agent", "private": True, "dependencies": {name: version}}
    write_own(directory / "package.json", msgspec.json.encode(manifest))
