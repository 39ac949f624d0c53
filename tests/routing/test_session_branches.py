"""The messages of one client find the chain of their session."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from support.raw_json import dumps, nested

from conductor.acp import session_id_of
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import encode_error
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.routing.session_branches import Branch, SessionBranches
from conductor.routing.stage import Stage, StagedPort


class Peer(StagedPort):
    """Keeps what it is sent; `calls` are the requests."""

    def __init__(self):
        super().__init__()
        self.got = []
        self.calls = []

    def deliver_request(self, call, method, params):
        self.got.append((method, params))
        self.calls.append(call)

    def deliver_notification(self, method, params):
        self.got.append((method, params))

    def deliver_batch(self, notifications):
        self.got += [(notifications.method, each) for each in notifications.params]

    def deliver_response(self, call, result, error):
        self.got.append((call.method, result, error))
        call.source.respond(call, result, error)

    def receive_request(self, call, method, params):
        self.received_requests.get(method, self.received_requests.others)(call, method, params)

    def receive_notification(self, method, params):
        route = self.received_notifications
        route.get(method, route.others)(method, params)

    def receive_batch(self, batch):
        self.received_batches.get(batch.method, self.received_batches.others)(batch)

    def receive_response(self, call, result, error):
        route = self.received_responses
        route.get(call.method, route.others)(call, result, error)


class Originator:
    def __init__(self):
        self.answers = []

    def respond(self, call, result, error):
        self.answers.append((call.method, result, error))


class Client:
    """A client with a first chain and a further one, `branch`; `chosen` is where sessions go."""

    def __init__(self):
        self.port, self.first = Peer(), Peer()
        self.port.connect(self.first)
        self.first.connect(self.port)
        self.open_sessions = {}
        self.reports = []
        self.chosen = None
        self.stage = SessionBranches(lambda *_: self.chosen, self.report, self.open_sessions)
        self.port.insert(self.stage)
        self.ended = []
        self.branch = self.new_branch()
        self.chain = self.branch.link.plain
        self.originator = Originator()

    def report(self, *about):
        self.reports.append(about)

    def new_branch(self):
        link = SimpleNamespace(name="chain", plain=Peer())
        branch = Branch(self.stage, link, lambda: self.ended.append(branch))
        return branch

    def request(self, method, **params):
        call = InFlightRequest(method, self.originator)
        self.port.receive_request(call, method, dumps(params))
        return call

    def notify(self, method, **params):
        self.port.receive_notification(method, dumps(params))

    def set_up(self, branch, method="session/new", **params):
        """A session set-up, for this branch or the first chain."""
        self.chosen = branch
        return self.request(method, **params)

    def open(self, session="b1", branch=None):
        branch = branch or self.branch
        self.answer(self.set_up(branch), branch, sessionId=session)

    def answer(self, call, branch=None, **result):
        (branch or self.branch).link.plain.receive_response(call, dumps(result), None)

    def answer_of_first(self, call, result=None, error=None):
        self.first.receive_response(call, result, error)

    def refuse(self, call, code):
        self.chain.receive_response(call, None, encode_error(code, "no"))

    def send(self, branch, method, **params):
        """A request of a chain to the client."""
        call = InFlightRequest(method, Originator())
        port = self.first if branch is None else branch.link.plain
        port.receive_request(call, method, dumps(params))
        return call


@pytest.fixture
def client():
    return Client()


def methods(port):
    return [message[0] for message in port.got]


def test_what_has_no_session_goes_to_the_first_chain(client):
    client.open()
    client.request("session/list")
    client.request("_vendor/ask", anything=1)
    client.notify("_vendor/note")

    assert methods(client.first) == ["session/list", "_vendor/ask", "_vendor/note"]


def test_a_session_that_is_loaded_has_messages_before_the_response(client):
    call = client.set_up(client.branch, "session/load", sessionId="b7")
    client.notify("session/cancel", sessionId="b7")
    client.refuse(call, -32002)
    client.notify("session/cancel", sessionId="b7")

    assert methods(client.chain) == ["session/load", "session/cancel"]
    assert methods(client.first) == ["session/cancel"]
    assert client.ended == [client.branch]


def test_an_open_session_that_cannot_be_loaded_again_keeps_its_chain(client):
    client.open("b1")
    client.refuse(client.set_up(client.branch, "session/load", sessionId="b1"), -32002)
    client.request("session/prompt", sessionId="b1")

    assert methods(client.chain) == ["session/new", "session/load", "session/prompt"]
    assert client.ended == []


def test_messages_of_an_mcp_server_go_to_the_chain_that_is_connected_to_it(client):
    call = client.send(client.branch, "mcp/connect")
    client.port.receive_response(call, b'{"connectionId":"c1"}', None)
    client.request("mcp/message", connectionId="c1")
    client.request("mcp/message", connectionId="c2")
    client.send(client.branch, "mcp/disconnect", connectionId="c1")
    client.request("mcp/message", connectionId="c1")

    assert methods(client.chain) == ["mcp/connect", "mcp/message"]
    assert methods(client.first) == ["mcp/message", "mcp/message"]


def test_a_login_goes_to_the_chain_that_required_it_last(client):
    client.refuse(client.set_up(client.branch), -32000)
    client.request("authenticate", methodId="m")
    assert methods(client.chain) == ["session/new", "authenticate"]

    client.answer_of_first(client.set_up(None), error=encode_error(-32000, "no"))
    client.request("authenticate", methodId="m")
    assert methods(client.first) == ["session/new", "authenticate"]


def test_a_logout_is_for_all_chains_and_answered_once(client):
    client.open()
    call = client.request("logout")
    (own,) = [each for each in client.chain.calls if each.method == "logout"]
    client.answer(own)
    client.answer_of_first(call, b"{}")

    assert methods(client.chain) == ["session/new", "logout"]
    assert [answer for answer in client.originator.answers if answer[0] == "logout"] == [
        ("logout", b"{}", None)
    ]


def test_a_session_of_a_branch_has_another_id_if_it_is_taken_also_in_what_comes_before_it(client):
    client.open_sessions["a1"] = None
    call = client.set_up(client.branch)
    updates = [dumps({"sessionId": each, "update": {}}) for each in ("a1", "a1", "a2")]
    client.chain.receive_notification("session/update", updates[0])
    client.chain.receive_batch(NotificationBatch("session/update", updates[1:]))
    client.answer(call, sessionId="a1")

    named = [session_id_of(params) for _, params in client.port.got[:3]]
    session = session_id_of(client.originator.answers[0][1])
    assert named == [session, session, "a2"]
    assert session.startswith("a1-")
    client.request("session/prompt", sessionId=session)
    assert client.chain.got[-1] == ("session/prompt", b'{"sessionId":"a1"}')
    client.chain.receive_response(client.chain.calls[-1], None, b'{"data":{"sessionId":"a1"}}')
    assert session.encode() in client.originator.answers[-1][2]


def test_a_session_of_the_first_chain_with_a_taken_id_is_refused(client):
    client.open("b1")
    client.answer_of_first(client.set_up(None), b'{"sessionId":"b1"}')

    assert client.originator.answers[-1][1] is None
    assert client.stage.sessions == {"b1": client.branch}


def test_a_session_that_is_set_up_anew_in_the_first_chain_leaves_its_old_one(client):
    client.open("b1")
    client.set_up(None, "session/load", sessionId="b1")
    client.request("session/prompt", sessionId="b1")

    assert methods(client.first) == ["session/load", "session/prompt"]


def announce(client, parent, child, branch=None):
    update = {"sessionUpdate": "subagent_update", "sessionId": child}
    params = dumps({"sessionId": parent, "update": update})
    (branch or client.chain).receive_notification("session/update", params)


def test_messages_of_a_subagents_session_go_to_the_chain_that_announced_it(client):
    client.open("b1")
    announce(client, "b1", "child")
    announce(client, "child", "grandchild")
    for session in ("child", "grandchild"):
        client.notify("session/cancel", sessionId=session)

    assert methods(client.chain) == ["session/new", "session/cancel", "session/cancel"]
    assert methods(client.first) == []


def test_a_subagent_takes_no_session_of_another_chain_and_keeps_no_chain_running(client):
    branch = client.new_branch()
    other = branch.link.plain
    client.open("b1")
    client.open_sessions["a1"] = None
    for session in ("b1", "a1"):
        announce(client, "x", session, other)
        client.request("session/prompt", sessionId=session)
    announce(client, "x", "child", other)
    client.stage.remove(branch)
    client.request("session/prompt", sessionId="child")

    assert methods(other) == []
    assert methods(client.chain) == ["session/new", "session/prompt"]
    assert methods(client.first) == ["session/prompt", "session/prompt"]


def test_the_newest_subagents_of_a_chain_are_remembered_and_none_with_long_ids(client):
    client.open("b1")
    for n in range(1001):
        announce(client, "b1", f"child {n}")
    announce(client, "b1", "x" * 1025)

    assert len(client.stage.sessions) == 1001
    assert {"b1", "child 1", "child 1000"} <= client.stage.sessions.keys()


def ask(client, branch, method, **params):
    """A request of a chain: whether the client has got it."""
    got = len(client.port.got)
    client.send(branch, method, **params)
    return len(client.port.got) > got


def tell(client, branch, *sessions):
    """Updates of a chain, alone and in a batch: the sessions of those that the client has got."""
    port, got = client.first if branch is None else branch.link.plain, len(client.port.got)
    updates = [dumps({"sessionId": each, "update": {"n": 1}}) for each in sessions]
    for each in updates:
        port.receive_notification("session/update", each)
    port.receive_batch(NotificationBatch("session/update", updates))
    return [session_id_of(params) for _, params in client.port.got[got:]]


def test_a_chain_speaks_for_no_session_of_another_one(client):
    """Past its `permissions`. Sessions of no chain may be those of a subagent."""
    client.open_sessions["a1"] = None
    client.open("b1")
    other = client.new_branch()
    client.open("c1", other)
    client.set_up(None, "session/load", sessionId="a2")
    announce(client, "b1", "child of b1")
    announce(client, "a1", "child of a1", client.first)
    owners = {client.branch: ("b1", "child of b1"), other: ("c1",)}
    owners[None] = ("a1", "a2", "child of a1")
    everyones = [each for own in owners.values() for each in own]

    for chain, own in owners.items():
        client.reports.clear()
        assert tell(client, chain, *everyones, "new") == [*own, "new"] * 2
        names = [{"method": "session/update", "session": each} for each in everyones]
        sender = "chain" if chain else "the first"
        foreign = [each for each in names if each["session"] not in own]
        assert client.reports == [(sender, each) for each in foreign * 2]
        for method in ("session/request_permission", "fs/read_text_file", "elicitation/create"):
            for session in everyones:
                assert ask(client, chain, method, sessionId=session) == (session in own)
            assert ask(client, chain, method, sessionId="new")
    refused = [message for message in other.link.plain.got if len(message) == 3]
    assert len(refused) == 3 * (len(everyones) - 1)
    assert all(b"-32602" in error for _, _, error in refused)


@pytest.mark.parametrize(
    "params",
    [
        b'{"sessionId":"b1","sessionId":"a1"}',
        rb'{"session\u0049d":"a1"}',
        b'{"session_id":"a1","sessionId":"b1"}',
        b'{"sessionId":"b1","update":{"sessionUpdate":"subagent_update","sessionId":"a1"}}',
        rb'{"sessionId":"b1","update":{"sessionUpdate":"subagent\u005fupdate","sessionId":"a1"}}',
        rb'{"sessionId":"b1","update":{"sessionId":"a1","\ud83d":1}}',
        b'{"sessionId":"a1","sessionId":"b1"}',
        rb'{"session\u0049d":"a1","sessionId":"b1"}',
        b'{"sessionId":"b1","update":{"sessionId":"a1","sessionId":"b2"}}',
        b'{"sessionId":"b1","update":{"sessionId":"a1"},"update":{"sessionUpdate":"plan"}}',
        b'{"sessionId":"b1","update":{"senderSessionId":"a1"}}',
    ],
    ids=[
        *("twice", "escaped", "spelled differently", "announced", "escaped announcement"),
        *("half an emoji", "hidden by the last", "escaped and hidden", "announced twice"),
        *("two updates", "sender"),
    ],
)
def test_a_session_of_another_chain_cannot_be_hidden(client, params):
    client.open_sessions["a1"] = None
    client.open("b1")
    client.port.got.clear()
    client.chain.receive_notification("session/update", params)
    client.chain.receive_batch(NotificationBatch("session/update", [params]))

    assert client.port.got == []


def test_a_chain_uses_only_its_own_terminals_and_mcp_servers(client):
    other = client.new_branch()
    server = {"type": "acp", "name": "n", "serverId": "server of b"}
    client.set_up(client.branch, cwd="/\ud83d", mcpServers=[server])
    for branch, name in ((client.branch, "b"), (None, "a")):
        for method, member in (("terminal/create", "terminalId"), ("mcp/connect", "connectionId")):
            call = client.send(branch, method)
            client.port.receive_response(call, dumps({member: f"of {name}"}), None)

    for method, ids in (
        ("terminal/output", {"terminalId": "of @"}),
        ("terminal/kill", {"terminalId": "of @", "connectionId": "x", "note": "\ud83d"}),
        ("mcp/message", {"connectionId": "of @"}),
        ("mcp/message", {"serverId": "server of @"}),
        ("mcp/connect", {"acpId": "server of @"}),
    ):
        of_b, of_a = (
            {name: id.replace("@", each) for name, id in ids.items() if id != "x"} for each in "ba"
        )
        assert ask(client, client.branch, method, **of_b)
        assert ask(client, None, method, **of_a)
        assert not ask(client, other, method, **of_b)
        assert not ask(client, client.branch, method, **of_a)
    for depth in (*range(900, 1010, 3), 5000):
        deep = b'{"connectionId":"of b","deep":%b}' % nested(depth)
        call = InFlightRequest("mcp/message", Originator())
        other.link.plain.receive_request(call, "mcp/message", deep)
        client.port.receive_request(call, "mcp/message", deep)
    for spelling in ("terminal_id", "TerminalID", "connection_id", "ServerId"):
        for branch in (client.branch, None):
            assert not ask(client, branch, "terminal/output", **{spelling: "of b"})
            assert not ask(client, branch, "mcp/message", **{spelling: "of b"})
    assert not ask(client, None, "terminal/output", terminalId="of b")
    assert not ask(client, None, "mcp/message", connectionId="of b")
    assert not ask(client, other, "mcp/disconnect", connectionId="of b")
    assert not ask(client, other, "terminal/output", terminalId="of b", connectionId=5)
    client.request("mcp/message", connectionId="of b")
    assert methods(client.chain)[-1] == "mcp/message"


def test_a_guessed_session_is_not_kept_from_the_chain_that_opens_it(client):
    other = client.new_branch()
    client.open("c1", other)
    for session in ("b1", "a1"):
        announce(client, "c1", session, other.link.plain)
    client.open("b1")
    client.answer_of_first(client.set_up(None), b'{"sessionId":"a1"}')
    client.open_sessions["a1"] = None

    assert tell(client, client.branch, "b1") == ["b1"] * 2
    assert tell(client, None, "a1") == ["a1"] * 2
    assert tell(client, other, "b1", "a1") == []


def test_what_a_further_chain_sends_is_not_traced_as_a_message_of_the_first(client):
    class Trace(Stage):
        name = "trace"
        sent = frozenset({"session/update", "session/new"})

        def __init__(self):
            self.seen = []

        def send_notification(self, forward, method, params):
            self.seen.append(session_id_of(params))
            forward(method, params)

    client.port.insert(trace := Trace())
    client.open("b1")

    assert tell(client, client.branch, "b1") == ["b1", "b1"]
    assert tell(client, None, "new") == ["new", "new"]
    assert trace.seen == ["new", "new"]
