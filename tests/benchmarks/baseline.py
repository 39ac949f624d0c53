"""The conductors that `paired` compares: that of this checkout, and the one of a fixed commit.

Each has an environment of its own in `.cache/paired`, made when it is missing, with nothing but the
conductor and what it depends on: entry points of other packages would be read at each start.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import attrs

from .subjects import ROOT

__all__ = ["REVISION", "Conductor", "baseline", "this"]

REVISION = "ed1cd8ab393a70ca1fa6b28d354a6ab7998a42d9"
"""Always this one: losses that are small against the commit before add up against a fixed one. It
is the last commit before the conductor's parts were rebuilt."""
_DATE = "2026-11-29"
"""Later releases of its dependencies are not installed for it."""
_CACHE = ROOT / ".cache" / "paired"
_FILES = ["bridges", "conductor", "docs/man", "proxies", "tests/benchmarks"]
_FILES += ["LICENSE", "README.md", "pyproject.toml"]


@attrs.frozen
class Conductor:
    """A checkout, and the Python that imports it."""

    checkout: Path
    python: Path

    def command(self, *arguments: str) -> list[str]:
        return [str(self.python), "-P", "-m", "conductor", *arguments]

    def program(self, name: str, *arguments: str) -> list[str]:
        """A program of the benchmarks that runs in the conductor's process."""
        path = self.checkout / "tests" / "benchmarks" / name
        return [str(self.python), "-P", str(path), *arguments]


def this() -> Conductor:
    return Conductor(ROOT, _environment(ROOT, _CACHE / "this"))


def baseline() -> Conductor:
    directory = _CACHE / REVISION[:8]
    checkout = directory / "checkout"
    if not checkout.exists():
        archive = _git("archive", REVISION, *_FILES)
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(directory / "unpacked", filter="data")
        (directory / "unpacked").rename(checkout)
    return Conductor(checkout, _environment(checkout, directory / "venv", "--exclude-newer", _DATE))


def _git(*arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True)
    except OSError as exc:
        sys.exit(f"git cannot be started: {exc}")
    if done.returncode:
        sys.exit(
            f"commit {REVISION[:8]}, with which this conductor is compared, cannot be read: "
            f"{done.stderr.decode().strip()}\nIn a shallow clone: git fetch --unshallow"
        )
    return done.stdout


def _environment(checkout: Path, venv: Path, *options: str) -> Path:
    """The Python of an environment; made again if the dependencies or the Python have changed."""
    python, made_of = venv / "bin" / "python", venv / "made-of"
    wanted = f"{sys.version}\n{(checkout / 'pyproject.toml').read_text()}"
    if not made_of.exists() or made_of.read_text() != wanted:
        shutil.rmtree(venv, ignore_errors=True)
        uv = [sys.executable, "-m", "uv"]
        subprocess.run([*uv, "venv", "-q", "--python", sys.executable, venv], check=True)
        install = ["pip", "install", "-q", "--compile-bytecode", "--python", python, *options]
        subprocess.run([*uv, *install, "-e", checkout], check=True)
        made_of.write_text(wanted)
    return python
