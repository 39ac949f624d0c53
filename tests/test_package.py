"""The wheel and the sdist: built, installed and run as users do it, and completely typed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import attrs
import pytest
import yaml
from support.mypy_cache import mypy_cache
from test_readme import ROOT, command

pytestmark = [
    pytest.mark.external,
    pytest.mark.skipif(not os.environ.get("CI"), reason="installs from the package index: CI only"),
]
PACKAGES = ("conductor", "proxies", "bridges")
PROGRAMS = Path(sys.executable).parent
"""`uv` and `uvx`, which take a tenth of pip's time."""


@attrs.frozen
class Built:
    """The distributions, in a directory of their own."""

    wheel: Path
    sdist: Path

    def run(
        self, program: object, *arguments: object, cwd: Path | None = None, **environ: str
    ) -> str:
        """Run a program on another working directory than the checkout's; its stdout."""
        bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        path = f"{PROGRAMS}:{os.environ['PATH']}"
        done = subprocess.run(
            ["env", str(program), *map(str, arguments)],
            cwd=cwd or self.wheel.parent,
            env=bare | {"PATH": path} | environ,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout

    def environment(self, name: str, extras: str = "", *packages: str) -> Path:
        """The Python of a new virtual environment with pip, the wheel and other packages."""
        python = self.wheel.parent / name / "bin" / "python"
        self.run("uv", "venv", "-q", "--seed", "--python", sys.executable, python.parents[1])
        wheel = f"acp-conductor{extras} @ {self.wheel.as_uri()}"
        self.run("uv", "pip", "install", "-q", "--python", python, wheel, *packages)
        return python


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    directory = tmp_path_factory.mktemp("package")
    # The wheel is built from the sdist.
    build = [PROGRAMS / "uv", "build", "-q", "--python", sys.executable, ROOT, "-o", directory]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = directory.glob("*.whl")
    (sdist,) = directory.glob("*.tar.gz")
    return Built(wheel, sdist)


def test_the_distributions_have_every_file_of_the_packages(built: Built) -> None:
    argv = ["git", "ls-files", *PACKAGES]
    files = set(subprocess.check_output(argv, cwd=ROOT, text=True).split())

    assert "conductor/py.typed" in files
    assert files <= set(zipfile.ZipFile(built.wheel).namelist())
    with tarfile.open(built.sdist) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert files | {"README.md", "LICENSE", "CHANGELOG.md", "chains/hello.yaml"} <= names


def test_pipx_installs_the_program_and_its_man_page(built: Built, tmp_path: Path) -> None:
    home = {f"PIPX_{name}": str(tmp_path / name.lower()) for name in ("HOME", "BIN_DIR", "MAN_DIR")}
    built.run("uvx", "pipx", "install", "--backend=uv", built.wheel, **home)

    shown = command("try").rpartition("acp-conductor ")[2]
    assert shown == 'prompt chains/brief.yaml "echo hello"'
    program = tmp_path / "bin_dir" / "acp-conductor"
    argv = [program, "prompt", ROOT / "chains" / "brief.yaml", "echo hello"]
    shown = subprocess.check_output(argv, text=True, cwd=tmp_path)
    assert "Answer in one sentence." in shown
    assert (tmp_path / "man_dir" / "man1" / "acp-conductor.1").exists()


def test_uvx_runs_the_wheel(built: Built) -> None:
    shown = built.run("uvx", "--from", built.wheel, "acp-conductor", "components", "usage")

    assert shown.startswith("usage (proxy): ")


def test_a_new_package_is_installed_and_passes_its_checks(built: Built, tmp_path: Path) -> None:
    """The commands that `new proxy` prints are those of the workflow that it writes."""
    python = built.environment("author")
    path = f"{python.parent}:{os.environ['PATH']}"
    environ = {"PATH": path, "MYPY_CACHE_DIR": str(mypy_cache(tmp_path / "mypy"))}
    said = built.run("acp-conductor", "new", "proxy", "turns", cwd=tmp_path, **environ)
    package = tmp_path / "turns"
    workflow = yaml.safe_load((package / ".github" / "workflows" / "ci.yaml").read_text())
    steps = [step["run"] for step in workflow["jobs"]["test"]["steps"] if "run" in step]

    printed = re.findall(r"^(?:Install|Test) it: +(.*?)   \(", said, re.MULTILINE)
    assert printed == [
        f"cd turns && {python} -m pip install -e '.[dev]'",
        f"cd turns && {python} -m pytest",
    ]
    assert said.strip().endswith(f"install it there first: pip install {built.wheel.as_uri()}")
    assert len(steps) == 5
    assert (steps[0], steps[-1]) == ('python -m pip install -e ".[dev]"', "python -m pytest")
    # For pip, only the package itself is left to install.
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    needed = project["optional-dependencies"]["dev"]
    built.run("uv", "pip", "install", "-q", "--python", python, *needed)
    for step in steps:
        built.run("bash", "-c", step, cwd=package, **environ)

    chain = {"version": 1, "proxies": [{"use": "turns", "with": {"note": "Be kind."}}]}
    (tmp_path / "chain.yaml").write_text(json.dumps(chain | {"agent": {"use": "test-agent"}}))
    prompt = ("prompt", "chain.yaml", "echo hello")
    assert "Be kind." in built.run("acp-conductor", *prompt, cwd=tmp_path, **environ)


def test_every_public_name_is_typed(built: Built) -> None:
    python = built.environment("typed", "[metrics,otel,sessions]", "pyright")
    shown = built.run(
        *("pyright", "--verifytypes", "conductor", "--ignoreexternal"),
        PATH=f"{python.parent}:{os.environ['PATH']}",
    )

    assert "Type completeness score: 100%" in shown
    assert "With unknown type: 0" in shown.partition("Symbols exported")[2]
