"""A chain whose files are read again after they have changed."""

from __future__ import annotations

from functools import partial

import pytest

from conductor.chain.reloadable_chain import ReloadableChain
from conductor.chainfile import load
from conductor.errors import ChainFileError

CHAIN = "version: 1\nname: first\nproxies: [{use: ./a.py:A}]\nagent: {use: test-agent}\n"
MISTAKE = "version: 1\nagnt: {use: test-agent}\n"


@pytest.fixture
def path(tmp_path):
    (tmp_path / "a.py").write_text("")
    (tmp_path / "chain.yaml").write_text(CHAIN)
    return tmp_path / "chain.yaml"


@pytest.fixture
def files(path):
    return ReloadableChain(load(path), partial(load, path))


def replace(path, text):
    """Replace a file, so that its stamp differs within one tick of the clock, too."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


@pytest.mark.parametrize("name", ["chain.yaml", "a.py"])
def test_a_changed_file_of_the_chain_or_a_plugin_is_noticed(files, path, name):
    assert not files.is_changed

    replace(path.parent / name, CHAIN.replace("first", "second"))
    assert files.is_changed
    files.reload()
    assert (files.is_changed, files.mistakes) == (False, None)


def test_a_changed_file_that_the_chain_nests_is_noticed(path):
    nested = path.parent / "nested.yaml"
    nested.write_text("version: 1\nproxies: [{use: ./a.py:A}]\n")
    path.write_text("version: 1\nproxies: [{chain: ./nested.yaml}]\nagent: {use: test-agent}\n")
    files = ReloadableChain(load(path), partial(load, path))

    replace(nested, "version: 1\nproxies: [{use: ./a.py:B}]\n")
    assert files.is_changed
    files.reload()
    assert next(spec.use for spec in files.chain.flat()).endswith(":B")


def test_mistakes_keep_the_chain(files, path):
    before = files.chain

    replace(path, MISTAKE)
    files.reload()
    assert "agnt" in str(files.mistakes)
    assert (files.chain, files.is_changed) == (before, False)

    replace(path, CHAIN.replace("first", "corrected"))
    assert files.is_changed
    files.reload()
    assert (files.chain.name, files.mistakes) == ("corrected", None)


def test_a_change_while_the_files_are_read_is_noticed_afterwards(path):
    def read():
        chain = load(path)
        replace(path, CHAIN.replace("first", "last"))
        return chain

    files = ReloadableChain(load(path), read)
    replace(path, CHAIN.replace("first", "second"))
    files.reload()

    assert (files.chain.name, files.is_changed) == ("second", True)


def test_imported_files_of_plugins_are_forgotten_before_the_chain_is_read(path):
    events = []

    def read():
        events.append("read")
        return load(path)

    files = ReloadableChain(load(path), read, lambda: events.append("forgotten"))
    files.reload()

    assert events == ["forgotten", "read"]


def test_without_files_a_chain_stays_as_it_is(path):
    chain = load(path)
    files = ReloadableChain(chain)
    path.unlink()

    assert not files.is_changed
    files.reload()
    assert (files.chain, files.mistakes) == (chain, None)


def test_a_chain_with_mistakes_from_the_start_can_be_read_later(path):
    path.write_text(MISTAKE)
    with pytest.raises(ChainFileError) as caught:
        load(path)
    files = ReloadableChain(caught.value, partial(load, path))

    files.reload()
    assert files.mistakes is not None
    path.write_text(CHAIN)
    files.reload()
    assert (files.chain.name, files.mistakes) == ("first", None)


@pytest.mark.parametrize("name", ["chain.yaml", "a.py"])
def test_what_a_program_in_a_sandbox_could_have_written_is_not_read(path, tmp_path, name):
    agent = "{run: [true], sandbox: {workspaces: [.]}}"
    path.write_text(CHAIN.replace("{use: test-agent}", agent))
    files = ReloadableChain(load(path), partial(load, path))
    before = files.chain

    replace(tmp_path / name, CHAIN if name == "chain.yaml" else "import os")

    for _ in range(2):  # every time
        assert files.is_changed
        files.reload()
        assert files.chain is before
        assert "a program in a sandbox could have written it" in str(files.refused)
