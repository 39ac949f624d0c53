"""Packages of PyPI: pin all transitive packages with hashes, and install exactly them, with uv.

uv resolves for every platform, so that a lock file is valid on all of them. Only wheels are taken,
unless the component allows more (`install_scripts`): building a package runs its code.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from conductor.errors import RegistryError
from conductor.files import read_own, write_own
from conductor.registry.pins import UvxPin
from conductor.registry.source import PackageDistribution
from conductor.registry.store import InstalledPackage
from conductor.registry.tools import run_tool, work_directory

__all__ = ["install_pypi", "pin_pypi", "split_requirement"]

_REQUIREMENT: Final = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._-]*)(\[[A-Za-z0-9._,-]+\])?(?:(?:==|@)([\w.!+-]+))?", re.ASCII
)
_NEEDS_PYTHON: Final = re.compile(r"Python>=([0-9]+\.[0-9]+)")
_VENV: Final = "venv"


def split_requirement(text: str) -> tuple[str, str]:
    """The name of the package, and the requirement for pip: `name[extra]==1.2.3`."""
    found = _REQUIREMENT.fullmatch(text)
    if found is None:
        raise RegistryError(f"{text!r} is not the name of a PyPI package, such as `name==1.2.3`")
    name, extras, version = found[1], found[2] or "", found[3]
    if version == "latest":
        version = None
    return name, f"{name}{extras}" + (f"=={version}" if version else "")


def pin_pypi(distribution: PackageDistribution, *, scripts: bool) -> UvxPin:
    """Resolve a package and everything that it needs, with all hashes."""
    name, requirement = split_requirement(distribution.package)
    with work_directory() as directory:
        try:
            python, compiled = _compile(directory, requirement, "", scripts=scripts)
        except RegistryError as exc:
            newer = _NEEDS_PYTHON.search(exc.message)
            if newer is None:
                raise
            python, compiled = _compile(directory, requirement, newer[1], scripts=scripts)
    requirements = tuple(_joined(compiled))
    version = _version(name, requirements)
    if any("--hash=" not in line for line in requirements):
        raise RegistryError(f"PyPI has no checksum for a package that {name} needs")
    return UvxPin(
        package=name,
        version=version,
        python=python,
        requirements=requirements,
        args=distribution.args,
        env=distribution.env,
        scripts=scripts,
    )


def install_pypi(pin: UvxPin, directory: Path) -> InstalledPackage:
    """Install the packages of a pin into a directory, and say how the program is started."""
    what = f"{pin.package} {pin.version} cannot be installed"
    _make_venv(directory, pin.python, what)
    write_own(directory / "requirements.txt", "\n".join([*pin.requirements, ""]).encode())
    arguments = ["pip", "install", "--quiet", "--require-hashes", "--no-deps", "--compile-bytecode"]
    arguments += [*_wheels(pin.scripts), "--python", f"{_VENV}/bin/python"]
    run_tool("uv", [*arguments, "-r", "requirements.txt"], directory, what)
    program = f"{_VENV}/bin/{pin.package}"
    if not (directory / program).is_file():
        raise RegistryError(f"the PyPI package {pin.package} has no program {pin.package!r}")
    return InstalledPackage(program, needs=(f"{_VENV}/bin/python",))


def _compile(directory: Path, requirement: str, python: str, *, scripts: bool) -> tuple[str, str]:
    """The version of the interpreter, and the requirements with hashes. `python`: the oldest
    version that will do."""
    what = f"{requirement} cannot be resolved"
    _make_venv(directory, python, what)
    settings = read_own(directory / _VENV / "pyvenv.cfg").decode()
    found = re.search(r"^version_info\s*=\s*([0-9]+\.[0-9]+)", settings, re.MULTILINE)
    assert found is not None
    arguments = ["pip", "compile", "--quiet", "--universal", "--generate-hashes", "--no-header"]
    arguments += ["--no-annotate", *_wheels(scripts), "--python", f"{_VENV}/bin/python", "-"]
    return found[1], run_tool("uv", arguments, directory, what, input=requirement + "\n")


def _make_venv(directory: Path, python: str, what: str) -> None:
    """Make the virtual environment. The conductor's own interpreter is taken if it is new enough:
    it is there. Otherwise uv looks for one, or fetches it; `UV_PYTHON` names another."""
    if "UV_PYTHON" in os.environ:
        chosen = os.environ["UV_PYTHON"]
    elif _numbers(python) <= sys.version_info[:2]:
        chosen = os.path.realpath(sys.executable)
    else:
        chosen = f">={python}"
    arguments = ["venv", "--quiet", "--relocatable", "--clear", "--no-project"]
    run_tool("uv", [*arguments, "--python", chosen, _VENV], directory, what)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split(".") if number)


def _wheels(scripts: bool) -> list[str]:
    return [] if scripts else ["--only-binary", ":all:"]


def _joined(compiled: str) -> Iterator[str]:
    """The requirements, each with its hashes in one line; without comments and options."""
    for line in compiled.replace("\\\n", " ").splitlines():
        words = line.split()
        if words and not words[0].startswith(("#", "-")):
            yield " ".join(words)


def _version(name: str, requirements: tuple[str, ...]) -> str:
    wanted = _normalized(name)
    for line in requirements:
        found = re.match(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;]+)", line)
        if found is not None and _normalized(found[1]) == wanted:
            return found[2]
    raise RegistryError(f"{name} is not among the packages that uv found")


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
