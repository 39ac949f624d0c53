"""`acp-conductor show FILE`"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from conductor.cli.arguments import CHAIN_PATH, other_files_options
from conductor.cli.terminal_text import printable_lines
from conductor.cli.tried_client import client_option
from conductor.secrets.formats import names_a_secret
from conductor.secrets.masking import MASK, redact

if TYPE_CHECKING:
    from conductor.chainfile.model import (
        ChainFile,
        ComponentSpec,
        ValuePath,
    )
    from conductor.cli.tried_client import TriedClient

__all__ = ["command"]

_URL_SECRETS: Final = re.compile(r"(?<=://)[^/@]+(?=@)|(?<==)[^&#]+")


@click.command("show")
@click.argument("file", type=CHAIN_PATH)
@click.option(
    "--cwd",
    default=".",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    help="The directory of a session: its project's file is added. Default: this directory.",
)
@other_files_options
@client_option
def command(
    file: str, cwd: str, no_project: bool, no_user: bool, client: TriedClient | None
) -> None:
    """Show the components of a chain file in order, nested chains in line.

    With those of the user's `chain.yaml` and of the project's `.acp-conductor.yaml`, if you trust
    it; a component that `when:` leaves out has the reason. Starts nothing. Masks values of
    environment variables and headers, and values with the name of a secret (token, key, password);
    `${VAR}` is shown as it is written. With --client also the adapters that this client gets;
    `check --start --client` asks the agent, too.

    \b
    Examples:
      acp-conductor show chains/hello.yaml
      acp-conductor show ~/chains/review.yaml
      acp-conductor show review --cwd ~/src/project
    """
    from conductor.chain.chooser import OtherFiles
    from conductor.cli.load import chain_or_exit, read_chain

    cwd = os.path.abspath(cwd)
    others = OtherFiles(user=not no_user, project=not no_project)
    chain, remarks = chain_or_exit(read_chain(file), cwd, others)
    unmet: Mapping[str, str] = {} if chain.agent is None else _unmet(chain, cwd)
    lines = [*remarks, *_lines(chain, unmet)]
    if client is not None and chain.agent is not None:
        lines += _adapters_for(client, chain)
    print(redact("\n".join(map(printable_lines, lines))))


def _unmet(chain: ChainFile, cwd: str) -> Mapping[str, str]:
    from conductor.chainfile.when import Facts, agent_names, unmet_conditions

    return unmet_conditions(chain.flat(), Facts(os.environ, cwd, agent_names(chain)))


def _lines(chain: ChainFile, unmet: Mapping[str, str]) -> Iterator[str]:
    yield f"{chain.name} ({chain.path})"
    components = chain.flat()
    for number, component in enumerate(components, 1):
        is_agent = chain.agent is not None and number == len(components)
        yield f"  {'agent' if is_agent else f'proxy {number}'}: {component.name}"
        if component.name in unmet:
            yield f"    left out here, without {unmet[component.name]}"
        for label, text in _settings(component):
            yield f"    {label}: {text}"
    if chain.agent is None:
        yield "  no agent: a chain of proxies"
    yield f"  mcp_bridge: {chain.mcp_bridge}"
    yield f"  max_message_bytes: {chain.limits.max_message_bytes}"
    yield from _adapters(chain)
    if chain.prewarm:
        yield "  prewarm: yes"


def _adapters(chain: ChainFile) -> Iterator[str]:
    """The settings of adapters, with the conditions of those that are inserted if needed."""
    from conductor.adapters.table import ADAPTERS
    from conductor.chainfile.model import ComponentSpec

    if chain.agent is None:
        return
    for row in ADAPTERS:
        if (setting := chain.adapt.get(row.name)) is None:
            continue
        text = f"  adapt: {row.name}: {setting.mode}"
        if setting.options:
            text += f" {_flow_style(ComponentSpec(name=row.name), (), setting.options)}"
        yield text + (f" ({row.condition})" if setting.mode == "auto" else "")
    if others := [row.name for row in ADAPTERS if row.is_default and row.name not in chain.adapt]:
        yield f"  adapt, without a setting: {', '.join(others)}: auto"


def _adapters_for(client: TriedClient, chain: ChainFile) -> Iterator[str]:
    """The adapters of a client, and those that depend on what the agent announces."""
    import msgspec

    from conductor.adapters.negotiated import announced_by_client
    from conductor.adapters.table import ADAPTERS, adapter_settings, adapters_for_client

    settings = adapter_settings(chain.adapt, chain.flat())
    announced = announced_by_client(msgspec.json.encode(client.params))
    found = [each.adapter.name for each in adapters_for_client(announced, settings)]
    yield f"  for {client.name}: {', '.join(found) or 'no adapters of the client'}"
    open_rows = [
        row.name
        for row in ADAPTERS
        if (row.side == "agent" or (row.is_behind_v1_v2 and announced.version == 2))
        and (settings[row.name].mode != "never" if row.name in settings else row.is_default)
    ]
    yield f"  for {client.name}, if the agent needs it: {', '.join(open_rows) or 'none'}"


def _settings(component: ComponentSpec) -> Iterator[tuple[str, str]]:
    """The values of the chain file's keys that differ from their defaults, with their names."""
    from conductor.chainfile.keys import declaration, key_names
    from conductor.chainfile.model import AgentItem

    default = AgentItem("")
    for key, name in key_names(AgentItem).items():
        declared, value = declaration(AgentItem, key), getattr(component, name)
        if declared.shown is False or (not declared.shown and value == getattr(default, name)):
            continue
        if (shown := _SHOWN.get(key)) is not None:
            yield from ((key, text) if isinstance(text, str) else text for text in shown(component))
        elif isinstance(value, Mapping):
            for member, inner in value.items():
                text = _unexpanded(component, (key, member))
                yield key, f"{member}: {text or (MASK if declared.secret else _text(inner))}"
        else:
            yield key, _unexpanded(component, (key,)) or _text(value)
    if component.location is not None:
        yield "at", str(component.location)


def _text(value: object) -> str:
    import msgspec

    from conductor.chainfile.model import RestartBudget

    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}s"
        case tuple():
            return ", ".join(map(str, value))
        case RestartBudget():
            return f"{value.count} in {value.within:g}s"
        case msgspec.Struct():
            members = (
                (field, getattr(value, field.name)) for field in msgspec.structs.fields(value)
            )
            return "; ".join(
                f"{each.name}: {_text(of)}" for each, of in members if of != each.default
            )
        case _:
            return str(value)


def _registry(component: ComponentSpec) -> Iterator[tuple[str, str]]:
    """The version of the name, and its command if it is installed."""
    from conductor.errors import RegistryError
    from conductor.registry.resolve import registry_status

    name = component.registry
    assert name is not None
    try:
        status = registry_status(name)
    except RegistryError as exc:
        yield "registry", f"{name.name} ({exc.message})"
        return
    yield "registry", f"{name.name} {status}"
    if status.command:
        yield "command", shlex.join(status.command)
    if name.source is not None:
        yield "from", _URL_SECRETS.sub(MASK, name.source)
    if name.install_scripts:
        yield "install_scripts", "yes"


def _sandbox(component: ComponentSpec) -> Iterator[str]:
    """Summary of the paths that the sandbox exposes."""
    sandbox = component.sandbox
    assert sandbox is not None
    workspaces = [
        outside if inside == outside else f"{outside} as {inside}"
        for outside, inside in sandbox.workspaces.items()
    ]
    lists = {
        "workspaces": workspaces or ["the working directory"],
        "read": sandbox.read,
        "write": sandbox.write,
        "hide": sandbox.hide,
        "pass_env": sandbox.pass_env,
    }
    shown = [f"{name}: {', '.join(values)}" for name, values in lists.items() if values]
    yield "; ".join([*shown, f"network: {'yes' if sandbox.network else 'no'}"])


def _argv(component: ComponentSpec) -> Iterator[str]:
    """The command, with the values of options that are named like secrets masked."""
    is_secret = False
    for index, word in enumerate(component.run or ()):
        written = _unexpanded(component, ("run", index))
        name, equals, _ = word.partition("=")
        if written is not None:
            yield written
        elif is_secret and not word.startswith("-"):
            yield MASK
        elif equals and index and names_a_secret(name):
            yield f"{name}={MASK}"
        else:
            yield word
        is_secret = word.startswith("-") and not equals and names_a_secret(word)


def _flow_style(component: ComponentSpec, path: ValuePath, value: Any) -> str:
    """The value of an option in YAML flow style."""
    match value:
        case Mapping():
            members = []
            for name, inner in value.items():
                member = (*path, name)
                masked = names_a_secret(str(name)) and _unexpanded(component, member) is None
                members.append(
                    f"{name}: {MASK if masked else _flow_style(component, member, inner)}"
                )
            return "{" + ", ".join(members) + "}"
        case None:
            return "null"
        case str():
            return _quoted(_unexpanded(component, path) or value)
        case Sequence():
            items = (
                _flow_style(component, (*path, index), each) for index, each in enumerate(value)
            )
            return "[" + ", ".join(items) + "]"
    return str(value)


def _quoted(text: str) -> str:
    if re.fullmatch(r"[\w./${:}@+-][\w ./${:}@+-]*", text) and not text.endswith(" "):
        return text
    import json

    return json.dumps(text, ensure_ascii=False)


def _unexpanded(component: ComponentSpec, path: ValuePath) -> str | None:
    """The unexpanded string of the file if it contains `${VAR}`, else `None`."""
    written = component.written.get(path)
    return None if written is None else written.text


def _use(component: ComponentSpec) -> Iterator[str]:
    yield f"{component.use}{' (in a process of its own)' if component.isolate else ''}"


def _connect(component: ComponentSpec) -> Iterator[str]:
    url = component.connect or ""
    yield _unexpanded(component, ("connect",)) or _URL_SECRETS.sub(MASK, url)


def _env(component: ComponentSpec) -> Iterator[str]:
    for name, value in component.env.items():
        masked = "null" if value is None else MASK
        yield f"{name}={_unexpanded(component, ('env', name)) or masked}"


_SHOWN: Final[dict[str, Callable[[ComponentSpec], Iterable[str | tuple[str, str]]]]] = {
    "run": lambda component: [shlex.join(_argv(component))],
    "use": _use,
    "registry": _registry,
    "connect": _connect,
    "with": lambda component: [_flow_style(component, ("with",), component.options)],
    "env": _env,
    "sandbox": _sandbox,
    "when": lambda component: map(_text, component.when),
}
"""What is shown of keys that have a form of their own."""
