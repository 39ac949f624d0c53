"""The chain of a server's next client, after changes of its files."""

from __future__ import annotations

from functools import partial

from support.server_clients import ask, initialize, new_session, serving, websocket

from conductor.chain.reloadable_chain import ReloadableChain
from conductor.chainfile import load
from conductor.log import configure
from conductor.server.run import CurrentChain

CHAIN = "version: 1\nname: NAME\nagent: {use: test-agent}\n"


def replace(path, text):
    """Replace a file, so that its stamp differs within one tick of the clock, too."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


def test_a_file_with_mistakes_changes_nothing_and_is_logged_once(tmp_path, capfd):
    path = tmp_path / "chain.yaml"
    path.write_text(CHAIN)
    current = CurrentChain(ReloadableChain(load(path), partial(load, path)))
    first = current()
    configure("error")

    replace(path, "version: 1\nagnt: {use: test-agent}\n")
    assert current() is current() is first
    assert capfd.readouterr().err.count("changed chain file not used") == 1

    path.unlink()
    assert current() is first
    path.write_text(CHAIN.replace("NAME", "corrected"))
    assert current().name == "corrected"


async def test_new_clients_get_the_changed_chain_and_others_keep_theirs(tmp_path):
    mark = "version: 1\nproxies: [{use: ./mark.py:Mark}]\nagent: {use: test-agent}\n"
    plugin = tmp_path / "mark.py"
    plugin.write_text(MARK)
    async with (
        serving(tmp_path, chain=CHAIN) as server,
        websocket(server) as first,
    ):
        assert "mark" not in (await ask(first, initialize()))["result"].get("_meta", {})

        replace(tmp_path / "chain.yaml", mark)
        async with websocket(server) as second:
            assert (await ask(second, initialize()))["result"]["_meta"]["mark"] == 1
        replace(plugin, MARK.replace("1", "22"))  # of another size: bytecode is by size and second
        async with websocket(server) as third:
            assert (await ask(third, initialize()))["result"]["_meta"]["mark"] == 22
        assert "result" in await ask(first, new_session(5))


async def test_no_chain_starts_after_a_change_that_a_sandbox_could_have_made(tmp_path):
    sandboxed = "version: 1\nagent: {run: [true], sandbox: {workspaces: [.]}}\n"
    async with serving(tmp_path, chain=sandboxed) as server:
        replace(tmp_path / "chain.yaml", CHAIN)

        async with websocket(server) as client:
            error = (await ask(client, initialize()))["error"]

    assert error["data"] == "ChainFileError"  # the log has the rest


MARK = """
from conductor.proxy import Proxy, on


class Mark(Proxy):
    @on("initialize")
    async def mark(self, params: dict, forward):
        result = await forward(params)
        return {**result, "_meta": {"mark": 1}}
"""
