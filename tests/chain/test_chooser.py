"""Which chain a session gets, and when a new one is made."""

from __future__ import annotations

import shlex

import pytest
from support.raw_json import TOO_DEEP, dumps, nested

from conductor.chain.chooser import ChainChooser, OtherFiles
from conductor.chainfile import load
from conductor.chainfile.layers import gather_layers
from conductor.errors import ChainFileError


@pytest.fixture
def command(home):
    """A command's chain file, and a chooser for it that was started in `launched`."""

    def make(text="agent: {run: my-agent}\n", launched=None, others=None, client="zed"):
        path = home / "chain.yaml"
        path.write_text(f"version: 1\n{text}")
        chooser = ChainChooser(
            load(path), lambda: load(path), str(launched or home), others=others or OtherFiles()
        )
        if client is not None:
            chooser.begin(dumps({"clientInfo": {"name": client}}))
        return path, chooser

    return make


def names(chain):
    return [spec.name for spec in chain.flat()]


def setup(directory):
    return dumps({"cwd": str(directory), "mcpServers": []})


def test_without_other_files_all_sessions_have_the_commands_chain(command, home):
    _, chooser = command()

    assert chooser.first() is chooser.likely()
    assert chooser.choose(setup(home)) is None


def test_the_notice_of_a_file_that_trust_refuses_says_what_to_do(command, project):
    file = project()
    file.chmod(0o666)
    _, chooser = command()
    chooser.first()

    (notice,) = chooser.choose(setup(file.parent)).notices

    assert notice.title.startswith(f"{file} is not used: every user of this machine can change it")
    assert notice.detail == f"chmod go-w {file}"
    (remark,) = gather_layers(str(file.parent), {}).remarks
    assert remark.endswith(f"; chmod go-w {file}")


def test_a_session_in_a_trusted_project_has_its_proxies(command, project, trust, home):
    file = project()
    trust(file)
    _, chooser = command()

    assert names(chooser.first()) == ["my-agent"]
    plan = chooser.choose(setup(file.parent))
    assert names(plan.chain) == ["context", "my-agent"]
    assert not chooser.is_first(plan)
    assert plan.is_same(chooser.choose(setup(file.parent)))
    assert plan.notices == ()
    assert chooser.choose(setup(home)) is None


def test_an_untrusted_file_has_no_effect_and_is_told_once(command, project):
    file = project()
    _, chooser = command()
    chooser.first()

    plan = chooser.choose(setup(file.parent))

    assert chooser.is_first(plan)
    (notice,) = plan.notices
    assert notice.title == f"{file} is not trusted yet: this session runs without its proxies"
    assert notice.detail.endswith(f"acp-conductor trust {file}")
    assert chooser.choose(setup(file.parent)).notices == ()


def test_the_command_in_a_notice_can_be_pasted_into_a_shell(command, project):
    """The name of a directory comes with a repository."""
    file = project(name="$(touch evil); x")
    _, chooser = command()
    chooser.first()

    (notice,) = chooser.choose(setup(file.parent)).notices
    assert shlex.split(notice.detail)[-3:] == ["acp-conductor", "trust", str(file)]


def remove(file):
    file.unlink()


def replace_by_a_link(file):
    file.rename(file.with_name("other"))
    file.symlink_to(file.with_name("other"))


def let_others_write(file):
    file.chmod(0o666)


def add_a_line(file):
    with file.open("a") as end:
        end.write("\n")


@pytest.mark.parametrize("change", [remove, replace_by_a_link, let_others_write, add_a_line])
def test_without_a_trusted_file_that_has_changed_there_is_no_session(
    command, project, trust, change
):
    """The permissions and the redaction in it are what the user relies on."""
    file = project()
    trust(file)
    _, chooser = command()
    chooser.first()
    assert names(chooser.choose(setup(file.parent)).chain) == ["context", "my-agent"]

    change(file)

    with pytest.raises(ChainFileError, match=r"the file (has changed|is not used)") as caught:
        chooser.choose(setup(file.parent))
    plan = chooser.explaining(caught.value)
    assert not chooser.is_first(plan)
    with pytest.raises(ChainFileError):
        plan.to_start()
    with pytest.raises(ChainFileError):
        gather_layers(str(file.parent), {})


def test_an_untrusted_file_does_not_hide_a_trusted_one_above_it(command, project, trust):
    file = project()
    trust(file)
    below = project("[{run: evil}]", "project/sub")
    _, chooser = command()
    chooser.first()

    assert names(chooser.choose(setup(below.parent)).chain) == ["context", "my-agent"]
    trust(below)
    assert names(chooser.choose(setup(below.parent)).chain) == ["evil", "my-agent"]


def test_trust_and_its_end_hold_for_the_next_session(command, project, trust):
    from conductor.chainfile.trust_store import forget

    file = project()
    _, chooser = command()
    chooser.first()
    assert chooser.is_first(chooser.choose(setup(file.parent)))

    trust(file)
    assert not chooser.is_first(chooser.choose(setup(file.parent)))
    forget(str(file))
    assert chooser.is_first(chooser.choose(setup(file.parent)))


def test_the_first_chain_is_that_of_the_directory_the_editor_starts_it_in(
    command, project, trust, home
):
    file = project()
    trust(file)
    _, chooser = command(launched=file.parent)

    assert names(chooser.likely()) == ["context", "my-agent"]
    assert names(chooser.first()) == ["context", "my-agent"]
    assert chooser.is_first(chooser.choose(setup(file.parent)))
    plan = chooser.choose(setup(home))
    assert names(plan.chain) == ["my-agent"]
    assert not chooser.is_first(plan)


def test_a_later_start_takes_the_directory_of_the_session_that_tries_it(command, project, trust):
    file = project()
    trust(file)
    _, chooser = command()
    chooser.first()

    chooser.begin(b"{}", setup(file.parent))

    assert names(chooser.first()) == ["context", "my-agent"]


def test_a_project_file_with_mistakes_that_is_trusted_fails_the_session(
    command, project, trust, monkeypatch
):
    monkeypatch.setenv("NOTES", "5s")
    file = project("[{run: notes, start_timeout: '${NOTES}'}]")
    trust(file)
    monkeypatch.setenv("NOTES", "nonsense")
    _, chooser = command()
    chooser.first()

    with pytest.raises(ChainFileError, match="start_timeout"):
        chooser.choose(setup(file.parent))


def test_a_set_up_that_cannot_be_read_is_for_the_commands_chain(command, home):
    _, chooser = command()
    chooser.first()

    assert chooser.choose(b'{"cwd":"/work","mcpServers":%b}' % nested(TOO_DEEP)) is None


def test_the_users_proxies_are_in_every_chain(command, home):
    path = home / "config" / "acp-conductor" / "chain.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("version: 1\nproxies: [{use: usage}]\n")
    _, chooser = command()

    assert names(chooser.first()) == ["usage", "my-agent"]
    assert chooser.is_first(chooser.choose(setup(home)))

    path.write_text("version: 1\nproxies: [{use: usage}, {use: nonsense, with: 3}]\n")
    plan = chooser.choose(setup(home))
    assert chooser.is_first(plan)
    assert "has changed and has mistakes" in plan.notices[0].title
    assert chooser.choose(setup(home)).notices == ()


def test_mistakes_found_at_a_restart_are_told_in_the_next_session(command, home):
    path = home / "config" / "acp-conductor" / "chain.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("version: 1\nproxies: [{use: usage}]\n")
    _, chooser = command()
    chooser.first()

    path.write_text("version: 1\nproxies: [{use: usage}, {use: nonsense, with: 3}]\n")
    assert names(chooser.first()) == ["usage", "my-agent"]
    (notice,) = chooser.choose(setup(home)).notices
    assert "has changed and has mistakes" in notice.title


def test_both_can_be_turned_off(command, project, trust, home):
    file = project()
    trust(file)
    path = home / "config" / "acp-conductor" / "chain.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("version: 1\nproxies: [{use: usage}]\n")
    _, chooser = command(others=OtherFiles(user=False, project=False), launched=file.parent)

    assert names(chooser.first()) == ["my-agent"]
    assert chooser.choose(setup(file.parent)) is None


def test_a_changed_chain_file_makes_a_new_chain(command, home):
    path, chooser = command()
    chooser.first()

    path.write_text("version: 1\nproxies: [{run: added}]\nagent: {run: my-agent}\n")
    plan = chooser.choose(setup(home))

    assert names(plan.chain) == ["added", "my-agent"]
    assert not chooser.is_first(plan)
    assert plan.is_same(chooser.choose(setup(home)))
    path.write_text("version: 1\nagent: {run: my-agent}\n")
    assert chooser.is_first(chooser.choose(setup(home)))


def test_a_chain_file_that_a_sandbox_of_another_file_could_write_is_refused(command, home):
    path = home / "config" / "acp-conductor" / "chain.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(f"version: 1\nproxies: [{{run: a, sandbox: {{workspaces: ['{home}']}}}}]\n")
    file, chooser = command()
    chooser.first()
    assert chooser.choose(setup(home)) is not None

    file.write_text("version: 1\nagent: {run: evil}\n")

    for _ in range(2):
        with pytest.raises(ChainFileError, match="a program in a sandbox could have written it"):
            chooser.choose(setup(home))


def test_a_chain_file_with_new_mistakes_is_told_and_not_used(command, home):
    path, chooser = command()
    chooser.first()

    path.write_text("version: 1\nagent: {rn: my-agent}\n")
    plan = chooser.choose(setup(home))

    assert chooser.is_first(plan)
    assert plan.notices[0].title.startswith(f"{path} has changed and has mistakes")
    assert chooser.choose(setup(home)) is None


def test_a_changed_python_file_makes_a_new_chain(command, home):
    (home / "mark.py").write_text("1\n")
    _, chooser = command("proxies: [{use: './mark.py:Mark'}]\nagent: {run: my-agent}\n")
    chooser.first()
    assert chooser.choose(setup(home)) is None

    (home / "mark.py").write_text("22\n")

    assert not chooser.is_first(chooser.choose(setup(home)))


def test_a_condition_on_the_directory_is_decided_for_each_session(command, home):
    inside, outside = home / "work" / "x", home / "other"
    inside.mkdir(parents=True)
    _, chooser = command(
        "proxies: [{run: a, when: {cwd: work}}, {run: b, when: {client: emacs}}]\n"
        "agent: {run: my-agent}\n"
    )

    assert names(chooser.first()) == ["my-agent"]
    plan = chooser.choose(setup(inside))
    assert names(plan.chain) == ["a", "my-agent"]
    assert plan.left_out == {"b": "client: emacs"}
    assert chooser.is_first(chooser.choose(setup(outside)))


def test_before_initialize_only_what_does_not_depend_on_the_client_is_likely(command):
    text = "proxies: [{run: a, when: {client: zed}}]\nagent: {run: my-agent}\n"
    _, chooser = command(text, client=None)

    assert names(chooser.likely()) == ["my-agent"]
    chooser.begin(b'{"clientInfo": {"name": "zed"}}')
    assert names(chooser.first()) == ["a", "my-agent"]


@pytest.mark.parametrize("params", [None, b"{}", b'{"cwd": 3}', b"[1]", b'{"cwd": null}'])
def test_a_session_without_directory_has_that_of_the_first_chain(command, project, trust, params):
    file = project()
    trust(file)
    _, chooser = command(launched=file.parent)
    chooser.first()

    assert chooser.is_first(chooser.choose(params))


def test_the_files_of_a_directory_are_listed_for_commands(project, trust, home):
    file = project()
    refused = gather_layers(str(file.parent), {})
    assert (refused.project, refused.refused) == (None, str(file))

    trust(file)
    found = gather_layers(str(file.parent), {})
    assert [each.name for each in found.project.proxies] == ["context"]
    assert found.remarks == (f"project: {file}",)
