"""Valid chain files; any invalid one raises only `ChainFileError`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conductor.chainfile import (
    ChainFile,
    ComponentSpec,
    Diagnostic,
    Limits,
    RestartBudget,
    SourceLocation,
    Tls,
    load,
)
from conductor.chainfile.model import RegistryName, Sandbox
from conductor.chainfile.paths import command_name
from conductor.errors import ChainFileError

EVERYTHING = """\
version: 1
name: review
mcp_bridge: off
limits: {max_message_bytes: 64KiB}
proxies:                                   # the first is nearest the client
  - use: context                           # by entry-point name
    with: {files: [AGENTS.md, ~], depth: 012, deep: {when: 12:30}}
  - use: ./approve.py:AutoApprove
    isolate: yes
  - name: notes
    run: [./bin/notes, --db, "${NOTES_DB:-notes.sqlite}", no]
    env: {NOTES_LEVEL: off}
    inherit_env: false
    cwd: data/../work
    dialect: _proxy
    start_timeout: 1.5s
    stop_timeout: 0s
    request_timeout: {session/prompt: 2m}
    stall_timeout: 500ms
    on_failure: restart
    restarts: 3 in 60s
    required: true
  - chain: ./sub/tools.yaml
  - connect: wss://proxy.example.org/acp
agent:
  run: [claude-agent-acp]
"""
TOOLS = """\
version: 1
proxies:
- run: [../bin/one]
- run: [/opt/bin/one, x]
- run: [one]
  name: one
"""


def _known(component: ComponentSpec | None) -> dict[str, Any]:
    """What a component says, but for its places and for what it leaves to the defaults."""
    assert component is not None
    silent = ("location", "locations", "key_locations", "written", "directory")
    default = ComponentSpec("")
    return {
        field: getattr(component, field)
        for field in ComponentSpec.__struct_fields__
        if field not in silent and getattr(component, field) != getattr(default, field)
    }


def test_every_path_may_begin_in_the_home_directory(
    chain: Callable[..., ChainFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    read = chain(
        """
        version: 1
        proxies:
          - use: ~/plugin.py:Mine
          - chain: ~/tools.yaml
          - unix: ~/socket
        agent: {run: [~/bin/agent, ~/argument], cwd: ~/work}
        """,
        files={"home/tools.yaml": TOOLS},
    )

    home = f"{tmp_path}/home"
    assert read.agent is not None
    assert read.proxies[1].chain is not None
    assert read.proxies[0].use == f"{home}/plugin.py:Mine"
    assert read.proxies[2].unix == f"{home}/socket"
    assert (read.agent.run, read.agent.cwd) == ((f"{home}/bin/agent", "~/argument"), f"{home}/work")


def test_the_paths_of_a_sandbox_are_absolute(
    chain: Callable[..., ChainFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    read = chain("""
        version: 1
        proxies:
          - {run: [a], sandbox: yes}
          - {run: [b], sandbox: no}
          - run: [c]
            sandbox: {workspaces: [src, ~/x], network: no}
        agent:
          run: [agent]
          sandbox:
            workspaces: {src: /workspace/}
            read: [~/.nvm]
            write: [cache]
            hide: [.env, ~/x/keys]
            pass_env: [KEY]
        """)

    assert read.agent is not None
    assert [component.sandbox for component in (*read.proxies, read.agent)] == [
        Sandbox(),
        None,
        Sandbox(
            workspaces={f"{tmp_path}/src": f"{tmp_path}/src", "/home/me/x": "/home/me/x"},
            network=False,
        ),
        Sandbox(
            workspaces={f"{tmp_path}/src": "/workspace"},
            read=("/home/me/.nvm",),
            write=(f"{tmp_path}/cache",),
            hide=(".env", "/home/me/x/keys"),
            pass_env=("KEY",),
        ),
    ]


def test_everything_that_a_file_can_say_is_read(
    chain: Callable[..., ChainFile], tmp_path: Path
) -> None:
    read = chain(EVERYTHING, files={"sub/tools.yaml": TOOLS})
    assert (read.path, read.name, read.mcp_bridge, read.limits) == (
        "chain.yaml",
        "review",
        "off",
        Limits(max_message_bytes=65536),
    )
    nested = read.proxies[3].chain
    assert nested is not None
    assert [_known(component) for component in read.proxies] == [
        {
            "name": "context",
            "use": "context",
            "options": {
                "files": ["AGENTS.md", None],
                "depth": "012",
                "deep": {"when": "12:30"},
            },
        },
        {
            "name": "AutoApprove",
            "use": f"{tmp_path}/approve.py:AutoApprove",
            "isolate": True,
        },
        {
            "name": "notes",
            "run": (f"{tmp_path}/bin/notes", "--db", "notes.sqlite", "no"),
            "env": {"NOTES_LEVEL": "off"},
            "inherit_env": False,
            "cwd": f"{tmp_path}/work",
            "dialect": "_proxy",
            "start_timeout": 1.5,
            "stop_timeout": 0.0,
            "request_timeout": {"session/prompt": 120.0},
            "stall_timeout": 0.5,
            "on_failure": "restart",
            "restarts": RestartBudget(count=3, within=60.0),
            "required": True,
        },
        {"name": "tools", "chain": nested},
        {"name": "proxy.example.org", "connect": "wss://proxy.example.org/acp"},
    ]
    assert _known(read.agent) == {"name": "claude-agent-acp", "run": ("claude-agent-acp",)}


def test_what_follows_if_an_mcp_server_does_not_start(tmp_path):
    path = tmp_path / "chain.yaml"
    path.write_text("version: 1\nagent: {run: agent}\nmcp: {required: true, start_timeout: 5s}\n")

    read = load(str(path)).mcp

    assert (read.required, read.start_timeout) == (True, 5.0)


def test_components_elsewhere_are_read_with_the_paths_of_their_own_machine(
    chain: Callable[..., ChainFile], tmp_path: Path
) -> None:
    read = chain(
        """\
version: 1
proxies:
- run: [./bin/notes, --db, notes.sqlite]
  ssh: user@host
  cwd: work
  env: {NOTES_LEVEL: debug}
- unix: run/tools.sock
- connect: https://example.org
  headers: {Authorization: "Bearer ${TOKEN}"}
  tls: {ca: ca.pem, cert: /etc/me.pem, server_name: agents.internal}
  ping_timeout: 10s
""",
        environ={"TOKEN": "t0ken"},
    )
    assert [_known(component) for component in read.proxies] == [
        {
            "name": "notes",
            "run": ("./bin/notes", "--db", "notes.sqlite"),
            "ssh": "user@host",
            "cwd": "work",
            "env": {"NOTES_LEVEL": "debug"},
        },
        {"name": "tools", "unix": f"{tmp_path}/run/tools.sock"},
        {
            "name": "example.org",
            "connect": "https://example.org",
            "headers": {"Authorization": "Bearer t0ken"},
            "tls": Tls(f"{tmp_path}/ca.pem", "/etc/me.pem", server_name="agents.internal"),
            "ping_timeout": 10.0,
        },
    ]


def test_a_nested_chain_is_put_in_line_under_its_name(
    chain: Callable[..., ChainFile], tmp_path: Path
) -> None:
    read = chain(EVERYTHING, files={"sub/tools.yaml": TOOLS})
    assert [(component.name, component.run) for component in read.flat()] == [
        ("context", None),
        ("AutoApprove", None),
        ("notes", (f"{tmp_path}/bin/notes", "--db", "notes.sqlite", "no")),
        ("tools/one-2", (f"{tmp_path}/bin/one",)),
        ("tools/one-3", ("/opt/bin/one", "x")),
        ("tools/one", ("one",)),
        ("proxy.example.org", None),
        ("claude-agent-acp", ("claude-agent-acp",)),
    ]


def test_a_chain_with_an_agent_can_be_the_agent(chain: Callable[..., ChainFile]) -> None:
    inner = "version: 1\nproxies: [{use: b}]\nagent: {use: test-agent}\n"
    read = chain(
        "version: 1\nproxies: [{use: a}]\nagent: {name: inner, chain: inner.yaml}\n",
        files={"inner.yaml": inner},
    )
    assert [each.name for each in read.flat()] == ["a", "inner/b", "inner/test-agent"]


def test_a_file_without_an_agent_is_a_proxy_chain_named_after_its_file(
    chain: Callable[..., ChainFile],
) -> None:
    assert chain("version: 1\nproxies: []\n") == ChainFile(path="chain.yaml", name="chain")


def test_sixty_four_proxies_are_not_too_many(chain: Callable[..., ChainFile]) -> None:
    read = chain("version: 1\nproxies: [" + "{use: x}, " * 64 + "]\nagent: {run: [a]}\n")
    assert [read.flat()[0].name, read.flat()[63].name] == ["x", "x-64"]


def test_an_alias_repeats_a_value(chain: Callable[..., ChainFile]) -> None:
    read = chain("version: 1\nproxies:\n- {run: [a], env: &env {X: y}}\n- {run: [b], env: *env}\n")
    assert [each.env for each in read.proxies] == [{"X": "y"}, {"X": "y"}]
    assert str(read.proxies[1].locations["env", "X"]) == "chain.yaml:3:28"


@pytest.mark.parametrize("data", [b"\xef\xbb\xbfversion: 1\r\nagent: {run: [a]}\r\n"])
def test_a_byte_order_mark_and_crlf_change_nothing(
    chain: Callable[..., ChainFile], data: bytes
) -> None:
    agent = chain(data).agent
    assert agent is not None
    assert agent.locations["run", 0] == SourceLocation("chain.yaml", 2, 15, 16, "agent: {run: [a]}")


def test_every_value_and_key_of_a_component_has_its_place(
    chain: Callable[..., ChainFile],
) -> None:
    component = chain(
        "version: 1\nproxies:\n- use: x\n  with:\n    files: [a, bc]  # two\n    text: |\n      t\n"
    ).proxies[0]
    columns = {
        path: (location.line, location.column, location.end_column)
        for path, location in component.locations.items()
    }
    assert component.location == SourceLocation("chain.yaml", 3, 3, 9, "- use: x")
    assert columns == {
        ("use",): (3, 8, 9),
        ("with",): (5, 5, 19),
        ("with", "files"): (5, 12, 19),
        ("with", "files", 0): (5, 13, 14),
        ("with", "files", 1): (5, 16, 18),
        ("with", "text"): (6, 11, 12),
    }
    assert str(component.key_locations["with", "files"]) == "chain.yaml:5:5"


@pytest.mark.parametrize(
    ("write", "printed"),
    [
        (lambda path: None, "chain.yaml: error: there is no such file"),
        (lambda path: path.mkdir(), "chain.yaml: error: this is a directory, not a chain file"),
        (
            lambda path: path.write_text("#" * 300_000),
            "chain.yaml: error: a chain file is at most 256 KiB long",
        ),
    ],
    ids=["missing", "directory", "huge"],
)
def test_a_file_that_cannot_be_read_is_a_problem_without_a_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[Path], None],
    printed: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("chain.yaml"))
    with pytest.raises(ChainFileError) as caught:
        load("chain.yaml")
    assert str(caught.value) == printed


def test_the_path_may_be_a_path_and_problems_are_data(tmp_path: Path) -> None:
    path = tmp_path / "chain.yaml"
    path.write_text("version: 1\nproxies: no\n")
    with pytest.raises(ChainFileError) as caught:
        load(path)
    assert caught.value.diagnostics == (
        Diagnostic(
            SourceLocation(str(path), 2, 10, 12, "proxies: no"),
            "proxies: expected a list, found `no`",
        ),
    )


def test_the_model_is_imported_without_yaml_and_cattrs() -> None:
    heavy = "{'yaml', 'cattrs', 'trio', 'difflib'} & set(sys.modules)"
    code = f"import sys, conductor.chainfile; sys.exit(bool({heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


_PIECES = st.sampled_from(
    (
        *("version: 1\n", "proxies:\n", "- use: a\n", "  with: ", "agent:\n", "  run: ", "name: "),
        *("{a: ", "[", "]", "}", "&a ", "*a", "!!int ", "<<: ", "? ", ": ", "- ", ", ", "'", '"'),
        *("${X}", "${", "$$", "\t", "|\n  x\n", ">-", '"\\U00110000"', '"\\ud800"', "%YAML 1.1\n"),
        *("---\n", "...\n", "#c\n", "\n", "  ", "\x85", "\u2028", "\x07", "\ufeff", "é", "~"),
        *(
            "limits: {max_message_bytes: ",
            "connect: http://[",
            "restarts: 3 in ",
            "chain: chain.yaml",
        ),
    )
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.one_of(st.binary(), st.text(), st.lists(_PIECES).map("".join)))
def test_any_text_is_valid_or_raises_a_chain_file_error(
    chain: Callable[..., ChainFile], text: str | bytes
) -> None:
    data = text if isinstance(text, bytes) else text.encode(errors="surrogatepass")
    try:
        chain(data, environ={"X": "secret"})
    except ChainFileError as error:
        shown = str(error)
        assert "error: " in shown


def test_the_time_to_end_a_cancelled_turn_is_the_agents(
    chain: Callable[..., ChainFile], diagnostics: Callable[..., str]
) -> None:
    start = "version: 1\nagent: {run: [x]"
    by_default = chain(start + "}\n").agent
    given = chain(start + ", cancel_timeout: 1m, on_cancel_timeout: restart}\n").agent

    assert by_default is not None
    assert given is not None
    assert (by_default.cancel_timeout, by_default.on_cancel_timeout) == (10.0, "answer")
    assert (given.cancel_timeout, given.on_cancel_timeout) == (60.0, "restart")
    assert "cancel_timeout: must be more than zero" in diagnostics(
        start + ", cancel_timeout: 0s}\n"
    )
    assert "`cancel_timeout`" in diagnostics(
        "version: 1\nproxies: [{run: x, cancel_timeout: 1s}]\n"
    )


@pytest.mark.parametrize(
    ("agent", "processes"),
    [
        ("opencode", 8),
        ("{run: [npx, -y, opencode-ai@1.18, acp]}", 8),
        ("{run: [/opt/bin/fast-agent-acp]}", 8),
        ("{run: [opencode, acp], session_processes: 0}", 0),
        ("{run: [opencode, acp], session_processes: 2}", 2),
        ("{run: [claude-agent-acp]}", 0),
        ("{name: opencode, run: [another]}", 0),
    ],
)
def test_sessions_of_agents_that_share_mcp_servers_have_processes(chain, agent, processes):
    assert chain(f"version: 1\nagent: {agent}\n").session_processes == processes


def test_the_number_of_processes_for_sessions_is_not_negative(diagnostics):
    text = "version: 1\nagent: {run: [x], session_processes: -1}\n"
    assert "session_processes: must not be negative" in diagnostics(text)


def test_a_proxy_may_be_restarted_when_it_holds_up_a_cancelled_turn(
    chain: Callable[..., ChainFile], diagnostics: Callable[..., str]
) -> None:
    start = "version: 1\nagent: {run: [x]}\nproxies:\n  - {on_cancel_timeout: restart, "

    for rest in ("run: [x]", "use: x, isolate: true"):
        assert chain(start + rest + "}\n").proxies[0].on_cancel_timeout == "restart"
    for rest in ("use: x", "use: x, on_failure: restart"):
        told = diagnostics(start + rest + "}\n")
        assert "a plugin in this process cannot be restarted" in told
        assert "add `isolate: true`" in told


def test_names_of_the_registry_have_their_lock_file_and_registry(
    chain: Callable[..., ChainFile], tmp_path: Path
) -> None:
    read = chain(
        "version: 1\nregistry: ./mine.json\nagent: claude-acp\n"
        "proxies: [{registry: notes, install_scripts: yes}, {name: n, registry: notes}]\n"
    )
    lock, source = read.path.replace(".yaml", ".lock"), f"{tmp_path}/mine.json"
    lock = str(tmp_path / Path(lock).name)

    assert [(each.name, each.registry) for each in read.flat()] == [
        ("notes", RegistryName("notes", lock, source, install_scripts=True)),
        ("n", RegistryName("notes", lock, source)),
        ("claude-acp", RegistryName("claude-acp", lock, source)),
    ]


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["claude-agent-acp"], "claude-agent-acp"),
        (["/opt/bin/agent", "--acp"], "agent"),
        (["python3.11", "-u", "tools/my_proxy.py", "--db", "x"], "my_proxy"),
        (["python", "-m", "conductor.testing.agent"], "conductor.testing.agent"),
        (["python", "-c", "print()"], "python"),
        (["npx", "-y", "@org/agent@1.2.3"], "agent"),
        (["uv", "run", "proxy.py"], "proxy"),
        (["node"], "node"),
    ],
)
def test_a_command_is_named_after_the_program_that_it_runs(argv: list[str], name: str) -> None:
    assert command_name(argv) == name


def test_one_word_is_a_command_without_arguments(tmp_path: Path) -> None:
    file = tmp_path / "chain.yaml"
    file.write_text("version: 1\nagent:\n  run: claude-agent-acp\n")
    agent = load(file).agent
    assert agent is not None
    assert agent.run == ("claude-agent-acp",)


@pytest.mark.parametrize("written", ["", "~", "NULL"])
def test_an_unquoted_null_is_none(chain: Callable[..., ChainFile], written: str) -> None:
    read = chain(f"""\
version: 1
agent:
  use: test-agent
  with: {{option: {written}}}
""")
    assert read.agent is not None
    assert read.agent.options == {"option": None}
