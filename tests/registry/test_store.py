"""The store: private, complete packages only, one installation at a time."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from platformdirs import user_data_path

from conductor.errors import RegistryError
from conductor.registry.pins import UvxPin
from conductor.registry.store import (
    InstalledPackage,
    find_installed,
    install_into_store,
    package_directory,
    store_directory,
    store_path,
)

PIN = UvxPin("u", "1.0.0", "3.12", ("u==1.0.0 --hash=sha256:0",))


def install(text: str = "program") -> bool:
    """Install the pin; returns whether it was not installed before."""
    calls: list[Path] = []

    def fill(directory: Path) -> InstalledPackage:
        calls.append(directory)
        (directory / "u").write_text(text)
        return InstalledPackage("u", needs=("u",))

    assert install_into_store("u", PIN, fill) == find_installed("u", PIN)
    return bool(calls)


def test_the_store_is_private_even_if_it_was_not(store):
    store.mkdir(parents=True, mode=0o755)
    directory = store_directory("pins")

    assert (store.stat().st_mode & 0o777, directory.stat().st_mode & 0o777) == (0o700, 0o700)


def test_a_store_that_cannot_be_made_is_an_error(store):
    store.parent.parent.write_text("a file")

    with pytest.raises(RegistryError, match=r"the store .* cannot be used"):
        store_directory()


def test_a_complete_package_is_found():
    assert find_installed("u", PIN) is None
    assert install()

    assert find_installed("u", PIN) == (
        package_directory("u", PIN),
        InstalledPackage("u", needs=("u",)),
    )
    assert not install("again")


def test_an_interrupted_installation_is_not_seen_and_its_remains_are_removed(store):
    def interrupted(directory: Path) -> InstalledPackage:
        (directory / "u").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        install_into_store("u", PIN, interrupted)

    assert find_installed("u", PIN) is None
    assert list((store / "staging").iterdir()) == []


def test_remains_of_a_killed_installation_are_replaced(store):
    remains = store_directory("staging") / f"u-{package_directory('u', PIN).name}"
    remains.mkdir()
    (remains / "old").write_text("of a killed process")

    assert install()
    assert not (package_directory("u", PIN) / "old").exists()


def test_a_package_whose_interpreter_is_gone_is_installed_again():
    install()
    (package_directory("u", PIN) / "u").unlink()

    assert find_installed("u", PIN) is None
    assert install()


def test_versions_cannot_name_other_directories(store):
    pin = UvxPin("u", "../../../x", "3.12", ())

    assert package_directory("u", pin).parent == store / "packages" / "u" / "v.._.._.._x"


def test_concurrent_installations_of_a_package_happen_once(capfd):
    inside, go_on = threading.Event(), threading.Event()
    results: list[bool] = []

    def first(directory: Path) -> InstalledPackage:
        inside.set()
        go_on.wait(10)
        (directory / "u").write_text("first")
        results.append(True)
        return InstalledPackage("u")

    threads = [threading.Thread(target=install_into_store, args=("u", PIN, first))]
    threads[0].start()
    assert inside.wait(10)
    threads.append(threading.Thread(target=lambda: results.append(install("second"))))
    threads[1].start()
    while "waiting" not in capfd.readouterr().err:
        assert threads[1].is_alive()
    go_on.set()
    for thread in threads:
        thread.join(10)

    assert sorted(results) == [False, True]
    assert (package_directory("u", PIN) / "u").read_text() == "first"


def test_the_store_is_where_platformdirs_has_it(store, monkeypatch):
    assert store_path() == store
    for name, value in (("XDG_DATA_HOME", None), ("XDG_DATA_HOME", ""), ("HOME", "/elsewhere")):
        if value is None:
            monkeypatch.delenv(name)
        else:
            monkeypatch.setenv(name, value)

        assert store_path() == user_data_path("acp-conductor", appauthor=False) / "agents"


def test_a_relative_directory_of_the_environment_is_ignored(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", "share")

    assert store_path() == tmp_path / ".local/share/acp-conductor/agents"
