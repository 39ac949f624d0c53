"""A client without capabilities and an agent that uses them, on the real SDKs, with and without the
adapters for what a client lacks."""

import pytest

CLIENT, AGENT = "py_plain_client", "ts_needy_agent"
PROMPTS = ["form", "option", "files", "terminal", "notice"]
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


def test_without_adapters_the_agent_uses_nothing(converse, run, peer):
    summary = converse(peer(CLIENT, ",".join(PROMPTS)), run(peer(AGENT)))

    said = {"option": "fast false"}
    text = "".join(f"{said.get(each, 'not announced')};" for each in PROMPTS)
    assert summary == {"options": [], "questions": [], "text": text, "exit": 0}


def test_adapters_put_in_what_the_client_lacks(converse, run, peer, workspace):
    summary = converse(peer(CLIENT, ",".join(PROMPTS)), run(peer(AGENT), *ADAPTERS))

    said = {"form": "accept blue", "option": "fast true", "files": "two", "terminal": "ran 3"}
    text = "".join(f"{said.get(each, 'sent')};" for each in PROMPTS)
    text = text.replace("sent;", "\n\n[warning: Careful]\n\nsent;")
    assert summary == {
        "options": ["select"],
        "questions": ["Which colour?"],
        "text": text,
        "exit": 0,
    }
    assert (workspace / "needy.txt").read_text() == "one\ntwo\n"
