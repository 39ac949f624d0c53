"""`acp-conductor new proxy NAME`: write the package of a new proxy."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import keyword
import re
import shlex
import sys
from pathlib import Path

import click

__all__ = ["command"]

_DIRECTORY_HINT = "--directory chooses another place"


@click.command("new")
@click.argument("kind", type=click.Choice(["proxy"]), metavar="proxy")
@click.argument("name")
@click.option(
    "-d",
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory to write to; a new one called NAME if not given.",
)
def command(kind: str, name: str, directory: Path | None) -> None:
    """Write an installable package: a proxy, its test, a chain file, a README, and checks for
    GitHub Actions.

    \b
    Examples:
      acp-conductor new proxy notes
      cd notes && acp-conductor prompt chain.yaml "echo hello"
      pytest
    """
    module = _module_name(name)
    target = directory if directory is not None else Path(name)
    try:
        _write(target, name, module)
    except OSError as exc:
        reason = f"{exc.filename or target} cannot be written: {exc.strerror}"
        raise click.UsageError(f"{reason}; {_DIRECTORY_HINT}") from None
    shown, python = shlex.quote(str(target)), shlex.quote(sys.executable)
    print(
        f"\nTry it:      cd {shown} && acp-conductor prompt chain.yaml 'echo hello'\n"
        f"Install it:  cd {shown} && {_pip_install(python)} -e '.[dev]'"
        f"   (then every chain file may have `{{use: {name}, with: {{note: …}}}}`)\n"
        f"Test it:     cd {shown} && {python} -m pytest   (after the installation)"
    )
    if (origin := _origin()) is not None:
        print(
            "\nacp-conductor itself was not installed from PyPI. For another environment than this "
            f"one,\ninstall it there first: pip install {shlex.quote(origin)}"
        )


def _write(target: Path, name: str, module: str) -> None:
    if target.is_dir() and any(target.iterdir()):
        raise click.UsageError(f"{target} exists and is not empty; {_DIRECTORY_HINT}")
    target.mkdir(parents=True, exist_ok=True)
    cls = "".join(word.capitalize() for word in module.split("_"))
    for file, template in _TEMPLATES.items():
        content = template.replace("@name@", name).replace("@module@", module)
        path = target / file.replace("@module@", module)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content.replace("@Class@", cls).lstrip("\n"), encoding="utf-8")
        print(path)


def _pip_install(python: str) -> str:
    """The install command for this environment; environments of `uv tool` have no pip."""
    if importlib.util.find_spec("pip") is not None:
        return f"{python} -m pip install"
    return f"uv pip install --python {python}"


def _origin() -> str | None:
    """The URL that acp-conductor was installed from, or `None` for a package index (PEP 610)."""
    try:
        text = importlib.metadata.distribution("acp-conductor").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None
    if text is None:
        return None
    origin = json.loads(text)
    vcs = origin.get("vcs_info")
    return f"{vcs['vcs']}+{origin['url']}@{vcs['commit_id']}" if vcs else str(origin["url"])


def _module_name(name: str) -> str:
    module = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", module) or keyword.iskeyword(module):
        raise click.UsageError(
            f"{name!r} cannot be the name of a package: use lower-case letters, digits and hyphens"
        )
    from conductor.plugins.loading import entry_points

    if name in entry_points():
        raise click.UsageError(
            f"an installed package has a component {name!r} already, and chain files that use it "
            f"would not start; how about my-{name}?"
        )
    if importlib.util.find_spec(module) is not None:
        raise click.UsageError(
            f"a Python module {module!r} already exists and would hide this one; "
            f"how about {name}-proxy?"
        )
    return module


_TEMPLATES = {
    "@module@.py": '''
"""A proxy between an editor and a coding agent: `acp-conductor run chain.yaml`."""

from __future__ import annotations

import attrs
from conductor.proxy import Forward, Prompt, Proxy, Session, on_prompt, run


@attrs.define
class @Class@(Proxy):
    """Puts a note before every prompt. The fields are the options: `with:` in a chain file."""

    note: str
    """The text of the note."""

    @on_prompt
    async def add_note(self, session: Session, prompt: Prompt, forward: Forward) -> object:
        prompt.prepend(self.note)
        return await forward()


if __name__ == "__main__":  # as a program, under any conductor: python @module@.py --note "…"
    run(@Class@)
''',
    "test_@module@.py": """
from __future__ import annotations

from typing import Any

from conductor.testing import FakeAgent

from @module@ import @Class@


async def test_the_note_comes_before_the_prompt(acp_chain: Any) -> None:
    agent = FakeAgent(turns=[["Hello."]])
    async with acp_chain(@Class@(note="Be kind."), agent) as client:
        await client.initialize()
        session = await client.new_session("/project")
        await client.prompt(session, "hi")

    (prompt,) = agent.transcript.of("session/prompt", "request")
    assert [block["text"] for block in prompt.params["prompt"]] == ["Be kind.", "hi"]
    assert client.transcript.text() == "Hello."
""",
    "chain.yaml": """
version: 1
name: @name@
proxies:
  - use: ./@module@.py:@Class@     # once it is installed, in any directory: `use: @name@`
    with:
      note: Answer in one sentence.
agent:
  use: test-agent                # for a real one: `run: claude-agent-acp`
""",
    "README.md": """
# @name@

A proxy for acp-conductor that puts a note before every prompt, with any editor and any agent:

```sh
pip install @name@
```

```yaml
version: 1
proxies:
  - use: @name@
    with:
      note: Answer in one sentence.
agent:
  run: claude-agent-acp
```

| Option | |
|---|---|
| `note` | the text of the note |

To work on it: `pip install -e '.[dev]'`, then `python -m pytest`.
`acp-conductor try @module@.py --with "note=Be kind."` shows what it does with each message.
""",
    "pyproject.toml": """
[build-system]
requires = ["hatchling>=1.25"]
build-backend = "hatchling.build"

[project]
name = "@name@"
version = "0.1.0"
description = "A proxy for acp-conductor."
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["acp-conductor"]

[project.optional-dependencies]
dev = ["mypy>=1.13", "pytest>=8.3", "pytest-trio>=0.8", "ruff>=0.8"]

[project.entry-points."conductor.components"]
@name@ = "@module@:@Class@"

[tool.hatch.build.targets.wheel]
only-include = ["@module@.py"]

[tool.pytest.ini_options]
trio_mode = true
pythonpath = ["."]

[tool.ruff]
line-length = 100

[tool.mypy]
strict = true
""",
    ".github/workflows/ci.yaml": """
name: CI
on: [push, pull_request]
permissions: {contents: read}
jobs:
  test:
    runs-on: ubuntu-latest
    strategy:
      matrix: {python-version: ["3.11", "3.14"]}
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with: {python-version: "${{ matrix.python-version }}"}
      - run: python -m pip install -e ".[dev]"
      - run: ruff check . && ruff format --check .
      - run: mypy @module@.py test_@module@.py
      - run: acp-conductor check chain.yaml
      - run: python -m pytest
""",
}
