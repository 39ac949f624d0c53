"""Which tests run; hypothesis profiles; no log on the terminal; projects with a file.

`pytest` alone runs the fast tests: those of `FAST`. A path on the command line (`pytest
tests/processes`) or an own `-m` runs all tests that it names, except `long`, which needs `--long`.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support.forked_command import CommandServer

from conductor import log

# Programs that tests start log text; those about the format choose it.
os.environ.setdefault("ACP_CONDUCTOR_LOG_FORMAT", "text")
# As an editor starts them: their `print` is buffered.
os.environ.pop("PYTHONUNBUFFERED", None)

TESTS = Path(__file__).parent
FAST = "fast or not (slow or external or benchmark)"
DIRECTORIES = {
    "benchmarks": "benchmark",
    "chaos": "slow",
    "fuzz": "slow",
    "interop": "external",
    "processes": "slow",
}
"""The marker of every test in a directory."""

TIMEOUT = 600
"""Seconds until a test hangs that is slow, or whose fixtures may compile or install something."""

settings.register_profile(
    "default",
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.register_profile("full", settings.get_profile("ci"), max_examples=50)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=5000)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "default")
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the long tests, too")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    names_paths = config.args_source is pytest.Config.ArgsSource.ARGS
    if not (config.option.markexpr or config.option.long or names_paths):
        config.option.markexpr = FAST  # which pytest-xdist hands to its workers


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what the fast run leaves out."""
    if config.option.markexpr == FAST and collection_path.parent == TESTS:
        return collection_path.name in DIRECTORIES.keys() - {"processes"} or None
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        marker = DIRECTORIES.get(item.path.relative_to(TESTS).parts[0])
        if marker is not None:
            item.add_marker(marker)
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.timeout(0))
        elif any(map(item.get_closest_marker, ("slow", "external", "benchmark"))):
            item.add_marker(pytest.mark.timeout(TIMEOUT))
    if config.option.long or "long" in config.option.markexpr:
        return
    long = [item for item in items if item.get_closest_marker("long")]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if not item.get_closest_marker("long")]


def pytest_collection() -> None:
    """Collecting the tests makes millions of objects, and none that could be freed."""
    gc.disable()


def pytest_sessionstart() -> None:
    """Programs that tests start can be interrupted, also if the tests run as a background job of a
    shell: its processes ignore SIGINT, and so would those that they start."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def chain(acp_chain: Callable[..., object]) -> Callable[..., object]:
    """`acp_chain`, by a shorter name."""
    return acp_chain


@pytest.fixture(scope="session", autouse=True)
def own_directories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Conductors of the tests have control sockets, flight recorders and trusted files of their
    own, and no chain files of the user."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp("xdg")))
        yield


@pytest.fixture(scope="session")
def command_server() -> Iterator[CommandServer]:
    """Commands with the imports of one process."""
    server = CommandServer()
    yield server
    server.close()


def pytest_collection_finish() -> None:
    """Tests that call `gc.collect()` do not traverse what collecting the tests has made."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _quiet_log():
    log.configure("off")
    yield
    log.configure("warning")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory without chain files."""
    path = tmp_path / "home"
    path.mkdir()
    monkeypatch.setenv("HOME", str(path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(path / "state"))
    return path


@pytest.fixture
def project(home: Path) -> Callable[..., Path]:
    """Write the file of a project; returns its path."""

    def write(
        proxies: str = "[{use: context, with: {text: hello}}]",
        name: str = "project",
        rest: str = "",
    ) -> Path:
        directory = home / name
        directory.mkdir(exist_ok=True)
        path = directory / ".acp-conductor.yaml"
        path.write_text(f"version: 1\nproxies: {proxies}\n{rest}")
        return path

    return write


@pytest.fixture
def trust() -> Callable[[Path], None]:
    """Trust a project's file as it is."""
    from conductor.chainfile.project_file import read_project_file
    from conductor.chainfile.trust_store import TrustedFile, remember

    return lambda path: remember(
        TrustedFile(str(path), read_project_file(str(path), os.environ).files)
    )
