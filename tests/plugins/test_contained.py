"""A proxy that contains proxies (`Proxy.proxies`)."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from conductor.chain.build import build_components
from conductor.chainfile import ComponentSpec, load
from conductor.errors import StartError
from conductor.plugins.contained import with_contained
from conductor.proxy import (
    DeclarationError,
    Proxy,
    on,
    on_prompt,
    on_session,
    on_session_end,
    on_text,
    per_session,
    slash,
    text,
    tool,
)
from conductor.testing import FakeAgent


@attrs.define(eq=False)
class Word(Proxy):
    """Put a word after every prompt and every piece of text, and count the prompts."""

    word: str = "-"
    log: list[str] = attrs.field(factory=list)

    counts = per_session(int)

    @on_session
    async def opened(self, session):
        self.log.append(f"{self.word} opened")

    @on_session_end
    async def ended(self, session):
        self.log.append(f"{self.word} ended")

    @on("session/prompt")
    async def count(self, params, forward):
        self.counts[params["sessionId"]] += 1
        return await forward()

    @on_prompt
    async def add(self, session, prompt, forward):
        prompt.blocks.append(text(self.word))
        return await forward()

    @on_text
    async def mark(self, session, text):
        return f"{text} {self.word}"

    @slash(lambda self: f"count-{self.word}", "Count the prompts")
    async def show(self, session, arguments):
        return f"{self.word}: {self.counts[session.id]}"


@attrs.define(eq=False)
class Words(Word):
    """Words around others."""

    inner: list[Proxy] = attrs.field(factory=list)

    def proxies(self):
        return self.inner


def names_of(plugin):
    return [name for name, _ in with_contained("rules", plugin)]


async def test_messages_pass_the_container_and_then_its_proxies_in_order(chain):
    log: list[str] = []
    inner = [Word("b", log), Words("c", log, inner=[Word("d", log)]), Word("e", log)]
    agent = FakeAgent(turns=[["said"]])
    async with chain(Words("a", log, inner=inner), agent) as client:
        await client.initialize()
        session = await client.new_session()
        await client.prompt(session, "hello")

    [prompt] = [
        each.params["prompt"] for each in agent.transcript if each.method == "session/prompt"
    ]
    assert [block["text"] for block in prompt] == ["hello", "a", "b", "c", "d", "e"]
    assert client.transcript.text() == "said e d c b a"
    assert sorted(log[:5]) == [f"{word} opened" for word in "abcde"]
    assert sorted(log[5:]) == [f"{word} ended" for word in "abcde"]


async def test_each_has_its_state_and_its_slash_commands(chain):
    outer = Words("a", inner=[Word("b"), Word("c")])
    async with chain(outer, FakeAgent(turns=[[], []])) as client:
        await client.initialize()
        session = await client.new_session()
        await client.prompt(session, "one")
        await client.prompt(session, "/count-b")
        await client.prompt(session, "/count-c")
        listed = [
            each.params["update"]["availableCommands"]
            for each in client.transcript
            if each.method == "session/update" and "availableCommands" in each.params["update"]
        ]

    assert sorted(command["name"] for command in listed[-1]) == ["count-a", "count-b", "count-c"]
    # The answers pass the containers of the proxy that gives them.
    assert client.transcript.text() == "b: 1 ac: 1 b a"


class Greeter(Proxy):
    @tool
    async def greet(self) -> str:
        return "hello"


class Polite(Proxy):
    def proxies(self):
        return [Greeter(), Greeter()]

    @tool
    async def thank(self) -> str:
        return "thanks"


async def test_the_tools_of_contained_proxies_are_offered(chain):
    agent = FakeAgent(capabilities={"mcpCapabilities": {"acp": True}})
    async with chain(Polite(), agent) as client:
        await client.initialize()
        await client.new_session()

    [given] = [each.params for each in agent.transcript if each.method == "session/new"]
    assert [server["name"] for server in given["mcpServers"]] == ["Polite", "Greeter", "Greeter"]


def test_contained_proxies_are_named_after_their_container():
    inner = [Word(), Words(inner=[Word()]), Word()]

    assert names_of(Words(inner=inner)) == [
        "rules",
        "rules/Word",
        "rules/Words",
        "rules/Words/Word",
        "rules/Word-2",
    ]


SHARED = Word()


class Endless(Proxy):
    def proxies(self):
        return [Endless()]


class Failing(Proxy):
    def proxies(self):
        raise SystemExit("no disk")


@pytest.mark.parametrize(
    ("plugin", "problem"),
    [
        (Words(inner=[Word]), "Words.proxies() returned the class Word: write Word(…)"),
        (Words(inner=["usage"]), "Words.proxies() returned 'usage', which is not a proxy"),
        (Words(inner=[SHARED, SHARED]), "returned one Word twice: write Word(…) for each"),
        (Words(inner=None), "Words.proxies() failed: TypeError"),
        (Endless(), "Endless.proxies() never ends: the proxy contains itself"),
        (Failing(), "Failing.proxies() failed: SystemExit: no disk"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mistakes_name_the_class(plugin, problem):
    with pytest.raises(StartError) as caught:
        with_contained("rules", plugin)

    assert problem in str(caught.value)


async def test_an_object_serves_one_chain(chain):
    async with chain(Words(inner=[SHARED]), FakeAgent()) as client:
        await client.initialize()
        with pytest.raises(StartError, match=r"a Word that runs in another chain"):
            with_contained("rules", Words(inner=[SHARED]))


def test_objects_of_the_class_are_refused_at_import():
    with pytest.raises(DeclarationError, match=r"Rules\.proxies is a method: .* several chains"):

        class Rules(Proxy):
            proxies = (Word(),)

    with pytest.raises(DeclarationError, match="without `async`"):

        class Hasty(Proxy):
            async def proxies(self):
                return []


def test_an_option_may_be_called_proxies():
    @attrs.define
    class Http(Proxy):
        proxies: tuple[str, ...] = ()  # type: ignore[assignment]

    assert names_of(Http(("http://localhost",))) == ["rules"]


RULES = """
import attrs

from conductor.proxy import Proxy, on_prompt, text


@attrs.define
class Word(Proxy):
    word: str = "b"

    @on_prompt
    async def add(self, session, prompt, forward):
        prompt.blocks.insert(0, text(self.word))
        return await forward()


@attrs.define
class Needed(Word):
    required = True


@attrs.define
class Rules(Word):
    word: str = "a"
    inner: Word = attrs.field(factory=Word)
    needed: bool = False

    def proxies(self):
        return [self.inner, *([Needed("c")] if self.needed else [])]
"""


@pytest.fixture
def rules(tmp_path):
    (tmp_path / "rules.py").write_text(RULES)

    def spec(keys: str = "") -> ComponentSpec:
        file = tmp_path / "chain.yaml"
        file.write_text(f"version: 1\nproxies:\n  - use: ./rules.py:Rules\n{keys}")
        (found,) = load(file).proxies
        return found

    return spec


async def test_options_of_contained_proxies_are_in_the_chain_file(chain, rules):
    spec = rules("    with: {inner: {word: hello}}\n")
    agent = FakeAgent()
    async with chain(spec, agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session(), "world")

    [prompt] = [
        each.params["prompt"] for each in agent.transcript if each.method == "session/prompt"
    ]
    assert [block["text"] for block in prompt] == ["hello", "a", "world"]


def test_a_mistake_in_their_options_has_its_place(rules):
    spec = rules("    with:\n      inner:\n        wrod: hello\n")

    with pytest.raises(StartError, match=r"chain\.yaml:6:9: error: unknown option `wrod`"):
        build_components([spec], mode="proxy")


@pytest.mark.parametrize(
    ("keys", "bypassed"),
    [
        ("    on_failure: bypass\n", True),
        ("    on_failure: bypass\n    with: {needed: true}\n", False),
        ("    on_failure: end_chain\n", False),
    ],
)
def test_an_entry_is_required_if_one_of_its_proxies_is(rules, keys, bypassed):
    components: Any = build_components([rules(keys)], mode="proxy")

    assert {each.bypassed_on_failure for each in components} == {bypassed}
