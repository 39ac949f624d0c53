"""Clients without capabilities and agents that use them, on the real SDKs, crossed: with and
without the adapters for what a client lacks."""

import pytest

PAIRS = [("py_plain_client", "ts_needy_agent"), ("ts_plain_client", "py_needy_agent")]
ADAPTERS = ("boolean_options", "elicitation", "local_files", "local_terminals", "notices")


@pytest.fixture
def run(conductor, tmp_path):
    """The command of a conductor that runs an agent, with these adapters."""

    def run(agent, *adapters):
        lines = ["version: 1", f"agent: {{run: {list(agent)!r}}}"]
        lines += ["adapt:", *(f"  {name}: auto" for name in adapters)] if adapters else []
        file = tmp_path / "chain.yaml"
        file.write_text("\n".join([*lines, ""]))
        return conductor("run", [str(file)])

    return run


def prompts(agent):
    """The Python SDK has no notices."""
    return ["form", "option", "files", "terminal", *(["notice"] if agent.startswith("ts") else [])]


def test_without_adapters_the_agent_uses_nothing(converse, run, peer):
    client, agent = PAIRS[0]
    asked = prompts(agent)
    summary = converse(peer(client, ",".join(asked)), run(peer(agent)))

    said = {"option": "fast false"}
    text = "".join(f"{said.get(each, 'not announced')};" for each in asked)
    assert summary == {"options": [], "questions": [], "text": text, "exit": 0}


@pytest.mark.parametrize(("client", "agent"), PAIRS)
def test_adapters_put_in_what_the_client_lacks(converse, run, peer, workspace, client, agent):
    asked = prompts(agent)
    summary = converse(peer(client, ",".join(asked)), run(peer(agent), *ADAPTERS))

    said = {"form": "accept blue", "option": "fast true", "files": "two", "terminal": "ran 3"}
    text = "".join(f"{said.get(each, 'sent')};" for each in asked)
    if "notice" in asked:
        text = text.replace("sent;", "\n\n[warning: Careful]\n\nsent;")
    assert summary == {
        "options": ["select"],
        "questions": ["Which colour?"],
        "text": text,
        "exit": 0,
    }
    assert (workspace / "needy.txt").read_text() == "one\ntwo\n"
