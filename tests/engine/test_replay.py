"""What docs/reliability.md promises of restarted proxies (virtual clock)."""

from __future__ import annotations

import json

import attrs
import pytest
import trio
from support.peers.wire import PassProxy
from support.played_chain import cancel_turn, played_chain, prompt, said, told

BOTH = pytest.mark.parametrize("version", [1, 2])


@attrs.define(eq=False)
class Seen(PassProxy):
    """Passes everything on, keeps what it has got, and holds back what `holds` names."""

    got: list = attrs.field(factory=list)
    holds: str = ""

    def take(self, line):
        message = json.loads(line)
        self.got.append({key: message[key] for key in message if key != "jsonrpc"})
        if not self.holds or self.holds not in line.decode():
            super().take(line)

    def asked(self):
        """Method and params of each request that came from the client."""
        return [
            (each["method"], each["params"])
            for each in self.got
            if "id" in each and not each.get("method", "successor").endswith("successor")
        ]


def restarted(session):
    return session, "[acp-conductor] p failed, was restarted"


@BOTH
@pytest.mark.parametrize("dialect", ["proxy", "_proxy"])
async def test_the_new_process_gets_handshake_and_open_sessions_and_its_successor_nothing(
    tmp_path, version, dialect, autojump_clock
):
    proxies = [{"name": "a"}, {"name": "p", "dialect": dialect}, {"name": "c"}]
    async with played_chain(
        tmp_path, None, *proxies, version=version, peers={"p": Seen, "c": Seen}
    ) as chain:
        await chain.open("s1", "s2")
        first, successor = chain["p"].peer, chain["c"].peer
        before = list(successor.got)

        await chain["p"].end()

        assert told(await chain.client.receive()) == restarted("s1")
        assert told(await chain.client.receive()) == restarted("s2")
        again = chain["p"].peer
        assert again is not first
        handshake, *set_ups = first.asked()
        (method, params), *others = again.asked()
        marker = params.pop("_meta")
        assert marker == {"acp-conductor/restart": {"sessions": ["s1", "s2"]}}
        assert ((method, params), others) == (handshake, set_ups)
        assert [each["result"] for each in again.got if "result" in each] == [
            each["result"] for each in first.got if "result" in each
        ]
        assert successor.got == before
        assert await chain.agent.receive_all() == []
        chain.finish(await chain.prompt(1, "s2"), "s2")
        assert len(await chain.client.receive_all()) == 1


async def test_a_closed_session_is_not_announced_to_the_new_process(tmp_path, autojump_clock):
    async with played_chain(tmp_path, None, {"name": "p"}, peers={"p": Seen}) as chain:
        await chain.open("s1", "s2")
        close = {"method": "session/close", "params": {"sessionId": "s1"}}
        chain.client.send({"id": 1, **close})
        await chain.serve("session/close")
        await chain.client.receive()

        await chain["p"].end()
        await chain.client.receive()

        assert [params["cwd"] for _, params in chain["p"].peer.asked()[1:]] == ["/s2"]


async def test_notifications_that_a_proxy_had_not_forwarded_are_lost_without_an_error(
    tmp_path, autojump_clock
):
    """In both directions; its unanswered request gets an error."""
    async with played_chain(tmp_path, None, {"name": "p"}, peers={"p": Seen}) as chain:
        await chain.open("s1")
        await chain.prompt(1)
        chain["p"].peer.holds = "lost"
        chain.client.send({"method": "_note", "params": {"x": "lost"}})
        chain.agent.send(said("lost"), said("kept"))
        await trio.testing.wait_all_tasks_blocked()
        await chain["p"].end()

        first, second = await chain.client.receive_all()
        assert told(first) == ("s1", "kept")
        assert (second["id"], second["error"]["data"]["component"]) == (1, "p")
        assert told(await chain.client.receive()) == restarted("s1")
        assert [each["method"] for each in await chain.agent.receive_all()] == [
            "$/cancel_request",
            "session/cancel",
        ]


async def test_messages_to_a_restarting_proxy_wait_in_order_in_both_directions(
    tmp_path, autojump_clock
):
    async with played_chain(tmp_path, None, {"name": "p"}) as chain:
        await chain.open("s1")
        await chain["p"].end()
        chain.client.send({"method": "_note"}, prompt(1), cancel_turn())
        chain.agent.send(said("one"), said("two"))
        await trio.testing.wait_all_tasks_blocked()
        assert not chain.agent.lines
        assert not chain.client.lines

        methods = [(await chain.agent.receive())["method"] for _ in range(3)]
        assert methods == ["_note", "session/prompt", "session/cancel"]
        texts = [told(each)[1] for each in await chain.client.receive_all()]
        assert [text for text in texts if "conductor" not in text] == ["one", "two"]


async def test_a_response_to_a_proxy_that_failed_is_dropped(tmp_path, autojump_clock):
    """Its request is answered once, with the error."""
    async with played_chain(tmp_path, None, {"name": "p"}) as chain:
        await chain.open("s1")
        request = await chain.prompt(1)
        await chain["p"].end()
        assert (await chain.client.receive())["error"]["data"]["component"] == "p"

        chain.finish(request)
        await chain.client.receive()  # that it was restarted

        assert await chain.client.receive_all() == []


@attrs.define(eq=False)
class Renames(PassProxy):
    """Gives each session an id that counts its own processes' sessions anew."""

    def reply(self, id, message):
        result = json.loads(message.get("result", b"{}"))
        if "sessionId" in result:
            message = {"result": b'{"sessionId":"%b"}' % self.name.encode()}
        super().reply(id, message)


async def test_a_session_is_not_renamed_by_another_id_after_the_restart(tmp_path, autojump_clock):
    async with played_chain(tmp_path, None, {"name": "p"}, peers={"p": Renames}) as chain:
        await chain.open()
        chain.client.send({"id": 1, "method": "session/new", "params": {"cwd": "/"}})
        await chain.serve("session/new", {"sessionId": "s1"})
        assert await chain.client.receive() == {"id": 1, "result": {"sessionId": "p#1"}}

        await chain["p"].end()

        assert told(await chain.client.receive()) == restarted("p#1")
        chain.client.send(prompt(2, "p#1"))
        assert (await chain.expect("session/prompt"))["params"]["sessionId"] == "p#1"
