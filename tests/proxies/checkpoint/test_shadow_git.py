"""Files of a checkpoint: what is saved, what is restored, and what of a repository counts."""

from __future__ import annotations

import os
import re
import shutil

import pytest
import trio
from support.checkpoint_turns import call, changes, command, files, needs_git, opened, rewound

from conductor.testing import FakeAgent
from proxies.checkpoint import Checkpoint

pytestmark = needs_git


@pytest.fixture
def proxy(tmp_path):
    return Checkpoint(directory=tmp_path / "state")


async def test_a_rewind_restores_changed_and_deleted_files_and_deletes_created_ones(
    chain, project, proxy
):
    (project / "sub").mkdir()
    (project / "sub" / "b.txt").write_text("two")
    before = files(project)

    def change():
        (project / "a.txt").write_text("changed")
        (project / "sub" / "b.txt").unlink()
        (project / "new").mkdir()
        (project / "new" / "c.txt").write_text("created")
        (project / "d.txt").write_text("created")
        (project / "sub" / "kept").mkdir()
        (project / "sub" / "kept" / "e.txt").write_text("created")

    agent = FakeAgent()
    agent.turns = [changes(agent, change)]
    async with chain(proxy, agent) as client:
        session = await opened(client, project)
        await client.prompt(session, "Change the\nfiles")
        after = files(project)
        listed = await command(client, session, "/rewind")
        assert re.fullmatch(r"1\. \d{4}-\d\d-\d\d \d\d:\d\d Change the files", listed)

        said = await command(client, session, "/rewind 1")
        assert said == (
            "Restored checkpoint 1: 2 files written, 3 deleted. /rewind 2 undoes it. "
            "The agent does not know of it."
        )
        assert files(project) == before
        assert not (project / "new").exists()
        await command(client, session, "/rewind 2")
        assert files(project) == after
        listed = await command(client, session, "/rewind")
    assert [line.split()[0] for line in listed.splitlines()] == ["1.", "2.", "3."]
    assert "before the rewind to 1" in listed


async def test_ignored_files_are_neither_saved_nor_deleted(chain, project, proxy):
    (project / ".gitignore").write_text("*.log\n")
    (project / "old.log").write_text("old")

    def change():
        (project / "old.log").write_text("changed")
        (project / "new.log").write_text("new")
        (project / ".gitignore").unlink()  # the files are no longer ignored

    found, _ = await rewound(chain, project, proxy, change)
    assert found == {
        "a.txt": "one",
        ".gitignore": "*.log\n",
        "old.log": "changed",
        "new.log": "new",
    }


async def test_ignore_rules_of_the_repository_around_the_directory_count(chain, tmp_path, proxy):
    project = tmp_path / "project" / "part"
    (project / "build").mkdir(parents=True)
    (tmp_path / "project" / ".git" / "info").mkdir(parents=True)
    (tmp_path / "project" / ".git" / "info" / "exclude").write_text("*.tmp\n")
    (tmp_path / "project" / ".gitignore").write_text("*.log\n/part/build\n/other/a.txt\n")
    names = ("a.log", "a.tmp", "build/x", "a.txt")
    for name in names:
        (project / name).write_text("old")

    def change():
        for name in names:
            (project / name).write_text("new")

    found, _ = await rewound(chain, project, proxy, change)
    assert found == {"a.log": "new", "a.tmp": "new", "build/x": "new", "a.txt": "old"}


async def test_large_files_and_nested_repositories_are_left_out_and_said_so(
    chain, project, tmp_path
):
    (project / "large.bin").write_text("x" * 101)
    await trio.run_process(["git", "init", "-q", project / "nested"])
    (project / "nested" / "a").write_text("old")

    def change():
        for name in ("large.bin", "large2.bin"):
            (project / name).write_text("y" * 101)
        (project / "nested" / "a").write_text("new")

    proxy = Checkpoint(directory=tmp_path / "state", max_file_bytes=100)
    agent = FakeAgent()
    agent.turns = [changes(agent, change)]
    async with chain(proxy, agent) as client:
        session = await opened(client, project)
        await client.prompt(session, "hi")
        left_out = "Left out (too large, unreadable, or a repository of its own): "
        told = f"[Checkpoint 1 is not complete: {left_out}large.bin, nested/]"
        assert told in client.transcript.text()
        said = await command(client, session, "/rewind 1")
        assert said.splitlines()[1] == f"{left_out}large.bin, large2.bin, nested/"
    assert (project / "large.bin").read_text() == "y" * 101
    assert (project / "large2.bin").exists()
    assert (project / "nested" / "a").read_text() == "new"


async def test_symbolic_links_are_kept_as_links_and_not_followed(chain, project, proxy, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_text("outside")
    (project / "link").symlink_to(outside)
    (project / "dir").mkdir()
    (project / "dir" / "a").write_text("inside")
    before = files(project)

    def change():
        (project / "link").unlink()
        (project / "link").write_text("a file now")
        shutil.rmtree(project / "dir")
        (project / "dir").symlink_to(outside)
        (project / "new").symlink_to(outside)

    found, _ = await rewound(chain, project, proxy, change)
    assert found == before
    assert files(outside) == {"a": "outside"}


async def test_a_directory_with_files_without_a_copy_is_not_replaced(chain, project, proxy):
    (project / ".gitignore").write_text("*.log\n")

    def change():
        (project / "a.txt").unlink()
        (project / "a.txt").mkdir()
        (project / "a.txt" / "x.log").write_text("mine")

    found, said = await rewound(chain, project, proxy, change)
    assert found == {".gitignore": "*.log\n", "a.txt/x.log": "mine"}
    assert said == (
        "Not possible: a.txt was a file and is a directory now, with a file that is in no "
        "checkpoint: move a.txt/x.log first."
    )


async def test_odd_names_modes_and_attributes_are_restored_byte_for_byte(chain, project, proxy):
    (project / ".gitattributes").write_text("* text=auto eol=crlf ident\n*.x filter=gone\n")
    odd = project / ":(top)we\nird *.x"
    odd.write_text("a\nb\r\n$Id$\n")
    script = project / "run.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    before = files(project)

    def change():
        odd.unlink()
        script.unlink()

    found, _ = await rewound(chain, project, proxy, change)
    assert found == before
    assert os.access(script, os.X_OK)


async def test_the_users_repository_index_and_hooks_are_not_touched(
    chain, project, proxy, tmp_path
):
    async def git(*arguments):
        settings = ["-c", "user.name=a", "-c", "user.email=a"]
        await trio.run_process(["git", *settings, *arguments], cwd=project)

    await git("init", "-q")
    await git("add", "a.txt")
    await git("commit", "-q", "-m", "x")
    (project / "staged").write_text("staged")
    await git("add", "staged")
    for hook in ("post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc"):
        script = project / ".git" / "hooks" / hook
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!/bin/sh\ntouch {tmp_path}/hook-ran\n")
        script.chmod(0o755)
    before = files(project)

    found, _ = await rewound(
        chain, project, proxy, lambda: (project / "a.txt").write_text("changed")
    )
    assert found == before
    assert not (tmp_path / "hook-ran").exists()


async def test_a_file_that_has_grown_over_the_limit_is_in_no_later_checkpoint(
    chain, project, tmp_path
):
    proxy = Checkpoint(directory=tmp_path / "state", max_file_bytes=10)
    agent = FakeAgent(turns=[[call("edit", str(n))] for n in range(2)])
    async with chain(proxy, agent) as client:
        session = await opened(client, project)
        await client.prompt(session, "hi")
        (project / "a.txt").write_text("now large enough")
        await client.prompt(session, "hi")
        await client.prompt(session, "/rewind 2")
        assert files(project) == {"a.txt": "now large enough"}
        await client.prompt(session, "/rewind 1")
    assert files(project) == {"a.txt": "one"}


async def test_gits_environment_variables_do_not_count(
    chain, project, proxy, monkeypatch, tmp_path
):
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    found, _ = await rewound(chain, project, proxy, (project / "a.txt").unlink)
    assert found == {"a.txt": "one"}
    assert not (tmp_path / "index").exists()


async def test_no_program_of_a_repository_that_took_the_place_of_a_file_is_run(
    chain, project, proxy, tmp_path
):
    async def git(*arguments):
        settings = ["-c", "user.name=a", "-c", "user.email=a"]
        await trio.run_process(["git", *settings, *arguments], cwd=project)

    agent = FakeAgent(turns=[[call("edit", str(n))] for n in range(4)])
    async with chain(proxy, agent) as client:
        session = await opened(client, project)
        await client.prompt(session, "hi")
        (project / "a.txt").unlink()
        await git("init", "-q", "a.txt")
        (project / "a.txt" / "b").write_text("b")
        (project / "a.txt" / ".gitattributes").write_text("* filter=mine")
        await git("-C", "a.txt", "add", "b")
        await git("-C", "a.txt", "commit", "-q", "-m", "b")
        (project / "a.txt" / "b").write_text("c")  # git status runs the filter to compare it
        with (project / "a.txt" / ".git" / "config").open("a") as config:
            config.write(f'[filter "mine"]\nclean = touch {tmp_path}/was-run; cat\n')
        for _ in range(3):
            await client.prompt(session, "hi")
        listed = await command(client, session, "/rewind")
    assert not (tmp_path / "was-run").exists()
    assert len(listed.splitlines()) == 4


async def test_a_repository_in_an_older_checkpoint_is_not_entered(chain, project, proxy, tmp_path):
    nested = project / "nested"
    await trio.run_process(["git", "init", "-q", nested])
    agent = FakeAgent(turns=[[call("edit", str(n))] for n in range(2)])
    async with chain(proxy, agent) as client:
        session = await opened(client, project)
        await client.prompt(session, "hi")
        (state,) = (tmp_path / "state").iterdir()
        entry = f"160000,{'1' * 40},nested"
        await trio.run_process(
            ["git", "--git-dir", state, "update-index", "--add", "--cacheinfo", entry]
        )
        await client.prompt(session, "hi")
        found = await trio.run_process(
            ["git", "--git-dir", state, "ls-files", "-s"], capture_stdout=True
        )
    assert b"nested" not in found.stdout


@pytest.mark.parametrize("kind", ["device", "pipe"])
async def test_ignore_rules_are_read_from_regular_files_only(chain, tmp_path, proxy, kind):
    project = tmp_path / "project" / "part"
    (tmp_path / "project" / ".git").mkdir(parents=True)
    project.mkdir()
    rules = tmp_path / "project" / ".gitignore"
    if kind == "device":
        rules.symlink_to("/dev/zero")
    else:
        os.mkfifo(rules)
    async with chain(proxy, FakeAgent(turns=[[call("edit")]])) as client:
        session = await opened(client, project)
        await client.prompt(session, "hi")
        assert (await command(client, session, "/rewind")).startswith("1. ")
