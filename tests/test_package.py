"""The wheel and the sdist: built, installed and run as users do it, and completely typed."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import attrs
import pytest
import yaml
from test_readme import ROOT, command

pytestmark = [
    pytest.mark.external,
    pytest.mark.skipif(not os.environ.get("CI"), reason="installs from the package index: CI only"),
]
PACKAGES = ("conductor", "proxies", "bridges")


@attrs.frozen
class Built:
    """The distributions, and the programs that packagers use."""

    wheel: Path
    sdist: Path
    programs: Path

    def run(self, program: str, *arguments: object, **environ: str) -> str:
        """Run a program on another working directory than the checkout's; its stdout."""
        bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        path = f"{self.programs}:{os.environ['PATH']}"
        done = subprocess.run(
            [str(self.programs / program), *map(str, arguments)],
            cwd=self.wheel.parent,
            env=bare | {"PATH": path} | environ,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    directory = tmp_path_factory.mktemp("package")
    programs = directory / "tools" / "bin"
    subprocess.run([sys.executable, "-m", "venv", directory / "tools"], check=True)
    subprocess.run(
        [programs / "pip", "install", "-q", "build", "pipx", "pyright", "uv"], check=True
    )
    # The wheel is built from the sdist.
    build = [programs / "python", "-m", "build", "--installer=uv", ROOT, "-o", directory / "dist"]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = (directory / "dist").glob("*.whl")
    (sdist,) = (directory / "dist").glob("*.tar.gz")
    return Built(wheel, sdist, programs)


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
    built.run("pipx", "install", "--backend=uv", built.wheel, **home)

    shown = command("try").rpartition("acp-conductor ")[2]
    assert shown == 'prompt chains/hello.yaml "say hello"'
    program = tmp_path / "bin_dir" / "acp-conductor"
    argv = [program, "prompt", ROOT / "chains" / "hello.yaml", "say hello"]
    assert subprocess.check_output(argv, text=True, cwd=tmp_path).strip() == "hello"
    assert (tmp_path / "man_dir" / "man1" / "acp-conductor.1").exists()


def test_uvx_runs_the_wheel(built: Built) -> None:
    shown = built.run("uvx", "--from", built.wheel, "acp-conductor", "components", "usage")

    assert shown.startswith("usage (proxy): ")


def test_the_checks_of_a_new_package_pass(built: Built, tmp_path: Path) -> None:
    """The steps of the workflow that `new proxy` writes, in a fresh environment."""
    built.run(
        "uvx", "--from", built.wheel, "acp-conductor", "new", "proxy", "-d", tmp_path, "turns"
    )
    built.run("uv", "venv", "-q", "--seed", "--python", sys.executable, tmp_path / ".venv")
    workflow = yaml.safe_load((tmp_path / ".github" / "workflows" / "ci.yaml").read_text())
    steps = [step["run"] for step in workflow["jobs"]["test"]["steps"] if "run" in step]

    assert len(steps) == 5
    for step in steps:
        done = subprocess.run(
            ["bash", "-c", step],
            cwd=tmp_path,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            | {"PATH": f"{tmp_path / '.venv' / 'bin'}:{os.environ['PATH']}"}
            | {"PIP_FIND_LINKS": str(built.wheel.parent)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{step}: {done.stdout}{done.stderr}"


def test_every_public_name_is_typed(built: Built) -> None:
    place = built.wheel.parent / "typed"
    built.run("uv", "venv", "-q", "--python", sys.executable, place)
    extras = f"acp-conductor[metrics,otel,sessions] @ {built.wheel.as_uri()}"
    built.run("uv", "pip", "install", "-q", "--python", place / "bin" / "python", extras)
    shown = built.run(
        *("pyright", "--pythonpath", place / "bin" / "python"),
        *("--verifytypes", "conductor", "--ignoreexternal"),
        PATH=f"{place / 'bin'}:{os.environ['PATH']}",
    )

    assert "Type completeness score: 100%" in shown
    assert "With unknown type: 0" in shown.partition("Symbols exported")[2]
