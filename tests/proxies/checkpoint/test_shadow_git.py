"""Files of a checkpoint: what is saved, what is restored, and what of a repository counts."""

from __future__ import annotations

import hashlib
import os
import re
import shutil

import pytest
import trio
from support.checkpoint_turns import call, changes, command, files, needs_git, opened, rewound

from conductor.testing import FakeAgent
from proxies.checkpoint import Checkpoint, shadow_git

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
        left_out = "Left out (too large, unreadable, no regular file, or a repository of its own): "
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


async def test_odd_files_prevent_no_checkpoint_and_those_left_out_are_named(
    chain, project, tmp_path
):
    (project / "saved").write_text("before")

    def make_odd():
        (project / "git~1").write_text("kept")
        (project / ".GIT").mkdir()
        (project / ".GIT" / "x").write_text("left out")
        (project / ".gitmodules").symlink_to("a.txt")
        os.mkfifo(project / ".gitattributes")
        (project / "saved").unlink()
        os.mkfifo(project / "saved")
        with open(os.fsencode(project) + b"/\xff\x1b[31m\nlarge", "w") as file:
            file.write("x" * 101)

    def change():
        (project / "a.txt").write_text("changed")
        (project / "git~1").unlink()
        (project / ".gitmodules").unlink()

    proxy = Checkpoint(directory=tmp_path / "state", max_file_bytes=100)
    agent = FakeAgent()
    agent.turns = [changes(agent, make_odd), changes(agent, change)]
    async with chain(proxy, agent) as client:
        session = await opened(client, project)
        await client.prompt(session, "hi")
        await client.prompt(session, "hi")
        told = client.transcript.text()
        await command(client, session, "/rewind 2")
        after = files(project)
        await command(client, session, "/rewind 1")
    assert "Checkpoint 2 is not complete: Left out" in told
    assert ".GIT/x, saved, \ufffd\ufffd[31m\ufffdlarge]" in told
    assert (after["a.txt"], after["git~1"], after[".gitmodules"]) == (
        "one",
        "kept",
        ("link", "a.txt"),
    )
    assert (project / ".GIT" / "x").exists()
    assert not (project / "git~1").exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("HEAD", ""),
        ("index", ""),
        ("config", "["),
        ("refs/checkpoints/000000002.lock", ""),
        ("objects/pack/tmp_pack_x", "x"),
    ],
)
async def test_what_a_killed_git_leaves_costs_no_checkpoint_and_no_space(
    chain, project, proxy, name, content
):
    agent = FakeAgent(turns=[[call("edit", "1")], [call("edit", "2")]])
    async with chain(proxy, agent) as client:
        session = await opened(client, project)
        await client.prompt(session, "first")
        (state,) = proxy.directory.iterdir()
        (state / name).write_text(content)
        await client.prompt(session, "second")
        listed = await command(client, session, "/rewind")
    assert [line.split()[-1] for line in listed.splitlines()] == ["first", "second"]
    assert not list(state.glob("objects/pack/tmp_*"))


@pytest.mark.parametrize("damage", ["no objects", "an empty object", "a broken ref"])
async def test_a_damaged_repository_is_set_aside_once_and_the_user_is_told(
    chain, project, proxy, damage
):
    agent = FakeAgent(turns=[[call("edit", str(n))] for n in range(3)])
    async with chain(proxy, agent) as client:
        session = await opened(client, project)
        await client.prompt(session, "first")
        (state,) = proxy.directory.iterdir()
        digest = hashlib.sha1(b"blob 3\0one").hexdigest()
        if damage == "no objects":
            shutil.rmtree(state / "objects")
        if damage == "an empty object":
            (state / "objects" / digest[:2] / digest[2:]).chmod(0o600)
            (state / "objects" / digest[:2] / digest[2:]).write_bytes(b"")
        if damage == "a broken ref":
            (state / "refs" / "checkpoints" / "000000002").write_text("")
        await client.prompt(session, "second")
        await client.prompt(session, "third")
        told = client.transcript.text()
        (project / "a.txt").write_text("changed")
        listed = await command(client, session, "/rewind")
        await command(client, session, "/rewind 1")
    new = "Checkpoint 1 is the first of new ones; the old ones are in"
    assert told.count(f"[The checkpoints were damaged: {new} {state}/damaged]") == 1
    assert [line.split()[-1] for line in listed.splitlines()] == ["second", "third"]
    assert files(project) == {"a.txt": "one"}
    assert (state / "damaged" / "refs" / "checkpoints").is_dir()


async def test_a_failure_that_a_new_repository_does_not_mend_costs_no_checkpoint(
    chain, project, proxy, tmp_path, monkeypatch
):
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *fast-import*) echo full >&2; exit 1;; esac\n'
        f'exec {shutil.which("git")} "$@"\n'
    )
    program.chmod(0o755)
    agent = FakeAgent(turns=[[call("edit", str(n))] for n in range(2)])
    async with chain(proxy, agent) as client:
        session = await opened(client, project)
        await client.prompt(session, "first")
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        await client.prompt(session, "second")
        listed = await command(client, session, "/rewind")
    assert "[No checkpoint was taken: git fast-import failed: full]" in client.transcript.text()
    assert [line.split()[-1] for line in listed.splitlines()] == ["first"]


async def test_a_repository_that_others_can_write_is_not_used(chain, project, proxy):
    agent = FakeAgent(turns=[[call("edit", str(n))] for n in range(2)])
    async with chain(proxy, agent) as client:
        session = await opened(client, project)
        await client.prompt(session, "first")
        (state,) = proxy.directory.iterdir()
        state.chmod(0o777)
        await client.prompt(session, "second")
    assert (
        "the directory of the checkpoints is not private to this user" in client.transcript.text()
    )


@pytest.mark.parametrize("place", [".git/HEAD", ".git/commondir", "other/HEAD"])
async def test_nothing_is_read_in_a_nested_repository(chain, project, proxy, place):
    """Git would wait for a pipe, and read a device into its memory."""
    for directory in ("nested/.git", "nested/other"):
        (project / directory / "objects").mkdir(parents=True)
        (project / directory / "refs").mkdir()
        (project / directory / "HEAD").write_text("ref: refs/heads/main\n")
    (project / "nested" / place).unlink(missing_ok=True)
    os.mkfifo(project / "nested" / place)
    if place.startswith("other"):
        shutil.rmtree(project / "nested" / ".git")
        (project / "nested" / ".git").write_text("gitdir: other\n")

    async with chain(proxy, FakeAgent(turns=[[call("edit")]])) as client:
        session = await opened(client, project)
        await client.prompt(session, "hi")
        assert (await command(client, session, "/rewind")).startswith("1. ")

    told = client.transcript.text()
    assert "Checkpoint 1 is not complete" in told
    assert "nested/" in told
    assert "nested/.git" not in told


@pytest.mark.parametrize("kind", ["too large", "not a regular file"])
@pytest.mark.parametrize("place", [".", "sub"])
async def test_a_directory_with_ignore_rules_that_git_cannot_read_is_left_out(
    chain, project, proxy, kind, place
):
    rules = project / place / ".gitignore"
    rules.parent.mkdir(exist_ok=True)
    if kind == "too large":
        rules.write_bytes(bytes(1_000_001))
    else:
        os.mkfifo(rules)
    async with chain(proxy, FakeAgent(turns=[[call("edit")]])) as client:
        session = await opened(client, project)
        await client.prompt(session, "hi")
        listed = await command(client, session, "/rewind")

    told = client.transcript.text()
    if place == ".":  # there is nothing else to save
        assert f".gitignore is {kind}" in told
    else:
        assert "Checkpoint 1 is not complete" in told
        assert "sub/" in told
        assert listed.startswith("1. ")


async def test_a_pipe_that_takes_the_place_of_rules_meanwhile_holds_up_no_turn(
    chain, project, proxy, monkeypatch
):
    monkeypatch.setattr(shadow_git, "_PATIENCE", 0.1)
    monkeypatch.setattr(shadow_git, "_odd_rules", lambda directory: None)
    os.mkfifo(project / ".gitignore")
    async with chain(proxy, FakeAgent(turns=[[call("edit")]])) as client:
        session = await opened(client, project)
        await client.prompt(session, "hi")

    assert "git does not tell which files are ignored" in client.transcript.text()


async def test_names_are_ignored_as_git_does(chain, project, proxy):
    (project / ".git").write_text("gitdir: elsewhere\n")  # a worktree
    (project / ".gitignore").write_text("*.log\nbuild/\n!kept.log\n")
    (project / "build" / "inner").mkdir(parents=True)
    (project / "inner").mkdir()
    saved = [":!a.txt", "kept.log", "inner/build"]
    ignored = [":(glob)*.log", "x.log", "build/kept.log", "build/inner/c", "inner/x.log"]
    for name in saved + ignored:
        (project / name).write_text("two")

    def delete():
        for name in saved + ignored:
            (project / name).unlink()

    found, said = await rewound(chain, project, proxy, delete)

    assert {*found} == {"a.txt", ".git", ".gitignore", *saved}
    assert "Left out" not in said
