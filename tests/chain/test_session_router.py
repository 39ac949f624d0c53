"""The messages of one client find the chain of their session."""

from __future__ import annotations

import pytest
from support.raw_json import dumps, nested

from conductor.acp import session_id_of
from conductor.chain.session_router import Branch, SessionRouter
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import encode_error
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.routing.link import Link
from conductor.routing.port import Port, connect_ports


class RecordingPort(Port):
    """Keeps what it is sent; `calls` are the requests."""

    def __init__(self):
        super().__init__()
        self.got = []
        self.calls = []

    def request(self, call, method, params):
        self.got.append((method, params))
        self.calls.append(call)

    def notify(self, method, params):
        self.got.append((method, params))

    def respond(self, call, result, error):
        self.got.append((call.method, result, error))
        call.source.respond(call, result, error)


class Originator:
    def __init__(self):
        self.answers = []

    def respond(self, call, result, error):
        self.answers.append((call.method, result, error))


class Client:
    """A client with a first chain and a further one."""

    def __init__(self):
        self.port, self.first, self.chain = RecordingPort(), RecordingPort(), RecordingPort()
        connect_ports(self.port, self.first)
        self.open_sessions = {}
        self.reports = []
        self.router = SessionRouter(self.port, self.port, self.report, self.open_sessions)
        self.ended = []
        self.branch = self.new_branch(self.chain)
        self.originator = Originator()

    def report(self, *about):
        self.reports.append(about)

    def new_branch(self, chain):
        link = Link("chain", "agent", lambda *_: None)
        branch = Branch(self.router, link, lambda: self.ended.append(branch))
        link.plain = chain  # instead of a connection
        connect_ports(branch, chain)
        self.router.branches.append(branch)
        return branch

    def request(self, method, **params):
        call = InFlightRequest(method, self.originator)
        self.port.neighbour.request(call, method, dumps(params))
        return call

    def open(self, session="b1", branch=None):
        call = InFlightRequest("session/new", self.originator)
        (branch or self.branch).open(call, "session/new", b"{}")
        self.answer(call, branch, sessionId=session)

    def answer(self, call, branch=None, **result):
        (branch or self.branch).respond(call, dumps(result), None)

    def refuse(self, call, code):
        self.branch.respond(call, None, encode_error(code, "no"))


@pytest.fixture
def client():
    return Client()


def methods(port):
    return [message[0] for message in port.got]


def test_messages_of_a_session_go_to_its_chain(client):
    client.open("b1")
    client.request("session/prompt", sessionId="b1")
    client.request("session/prompt", sessionId="a1")
    client.port.neighbour.notify("session/cancel", b'{"sessionId":"b1"}')
    client.port.neighbour.notify("session/cancel", b'{"sessionId":"a1"}')

    assert methods(client.chain) == ["session/new", "session/prompt", "session/cancel"]
    assert methods(client.first) == ["session/prompt", "session/cancel"]


def test_what_has_no_session_goes_to_the_first_chain(client):
    client.open()
    client.request("session/list")
    client.request("_vendor/ask", anything=1)
    client.port.neighbour.notify("_vendor/note", None)

    assert methods(client.first) == ["session/list", "_vendor/ask", "_vendor/note"]


def test_a_session_that_is_loaded_has_messages_before_the_response(client):
    call = InFlightRequest("session/load", client.originator)
    client.branch.open(call, "session/load", b'{"sessionId":"b7"}')
    client.port.neighbour.notify("session/cancel", b'{"sessionId":"b7"}')
    client.refuse(call, -32002)
    client.port.neighbour.notify("session/cancel", b'{"sessionId":"b7"}')

    assert methods(client.chain) == ["session/load", "session/cancel"]
    assert methods(client.first) == ["session/cancel"]
    assert client.ended == [client.branch]


def test_a_fork_stays_in_the_chain_of_its_parent(client):
    client.open("b1")
    call = client.request("session/fork", sessionId="b1")
    client.answer(call, sessionId="b2")
    client.request("session/prompt", sessionId="b2")

    assert methods(client.chain) == ["session/new", "session/fork", "session/prompt"]


def test_a_chain_is_idle_after_its_last_session(client):
    client.open("b1")
    client.open("b2")
    for session in ("b1", "b2"):
        assert client.ended == []
        client.answer(client.request("session/close", sessionId=session))

    assert client.ended == [client.branch]
    client.request("session/prompt", sessionId="b1")
    assert methods(client.first) == ["session/prompt"]


def test_the_answer_of_the_client_goes_to_the_chain_that_has_asked(client):
    asker = Originator()
    questions = [
        InFlightRequest("session/request_permission", asker),
        InFlightRequest("session/request_permission", asker),
    ]
    client.branch.request(questions[0], "session/request_permission", b"{}")
    client.router.first.request(questions[1], "session/request_permission", b"{}")
    for call in questions:
        client.port.neighbour.respond(call, b"{}", None)

    assert methods(client.chain) == ["session/request_permission"]
    assert methods(client.first) == ["session/request_permission"]


def test_messages_of_an_mcp_server_go_to_the_chain_that_is_connected_to_it(client):
    connect = InFlightRequest("mcp/connect", Originator())
    client.branch.request(connect, "mcp/connect", b"{}")
    client.port.neighbour.respond(connect, b'{"connectionId":"c1"}', None)
    client.request("mcp/message", connectionId="c1")
    client.request("mcp/message", connectionId="c2")
    client.branch.request(
        InFlightRequest("mcp/disconnect", Originator()), "mcp/disconnect", b'{"connectionId":"c1"}'
    )
    client.request("mcp/message", connectionId="c1")

    assert methods(client.chain) == ["mcp/connect", "mcp/message"]
    assert methods(client.first) == ["mcp/message", "mcp/message"]


def test_a_login_goes_to_the_chain_that_required_it_last(client):
    call = InFlightRequest("session/new", client.originator)
    client.branch.open(call, "session/new", b"{}")
    client.refuse(call, -32000)
    client.request("authenticate", methodId="m")
    assert methods(client.chain) == ["session/new", "authenticate"]

    call = client.request("session/new")
    client.router.first.respond(call, None, encode_error(-32000, "no"))
    client.request("authenticate", methodId="m")
    assert methods(client.first) == ["session/new", "authenticate"]


def test_a_logout_is_for_all_chains_and_answered_once(client):
    client.open()
    call = client.request("logout")
    (own,) = [each for each in client.chain.calls if each.method == "logout"]
    client.answer(own)
    client.router.first.respond(call, b"{}", None)

    assert methods(client.chain) == ["session/new", "logout"]
    assert [answer for answer in client.originator.answers if answer[0] == "logout"] == [
        ("logout", b"{}", None)
    ]


def test_equal_session_ids_are_refused(client):
    client.open_sessions["a1"] = None
    client.open("a1")
    client.open("b1")
    other = client.new_branch(RecordingPort())
    client.open("b1", other)
    call = client.request("session/new")
    client.router.first.respond(call, b'{"sessionId":"b1"}', None)

    assert [result for _, result, _ in client.originator.answers] == [
        *(None, b'{"sessionId":"b1"}', None, None),
    ]
    assert client.router.sessions == {"b1": client.branch}


def test_a_session_that_is_set_up_anew_in_the_first_chain_leaves_its_old_one(client):
    client.open("b1")
    client.router.forget("b1")
    client.request("session/prompt", sessionId="b1")

    assert methods(client.first) == ["session/prompt"]


def announce(client, parent, child, branch=None):
    update = {"sessionUpdate": "subagent_update", "sessionId": child}
    params = dumps({"sessionId": parent, "update": update})
    (branch or client.branch).notify("session/update", params)


def test_messages_of_a_subagents_session_go_to_the_chain_that_announced_it(client):
    client.open("b1")
    announce(client, "b1", "child")
    announce(client, "child", "grandchild")
    for session in ("child", "grandchild"):
        params = dumps({"sessionId": session})
        client.port.neighbour.notify("session/cancel", params)

    assert methods(client.chain) == ["session/new", "session/cancel", "session/cancel"]
    assert methods(client.first) == []


def test_a_subagent_takes_no_session_of_another_chain_and_keeps_no_chain_running(client):
    other = RecordingPort()
    branch = client.new_branch(other)
    client.open("b1")
    client.open_sessions["a1"] = None
    for session in ("b1", "a1"):
        announce(client, "x", session, branch)
        client.request("session/prompt", sessionId=session)
    announce(client, "x", "child", branch)
    client.router.remove(branch)
    client.request("session/prompt", sessionId="child")

    assert methods(other) == []
    assert methods(client.chain) == ["session/new", "session/prompt"]
    assert methods(client.first) == ["session/prompt", "session/prompt"]


def test_the_newest_subagents_of_a_chain_are_remembered_and_none_with_long_ids(client):
    client.open("b1")
    for n in range(1001):
        announce(client, "b1", f"child {n}")
    announce(client, "b1", "x" * 1025)

    assert len(client.router.sessions) == 1001
    assert {"b1", "child 1", "child 1000"} <= client.router.sessions.keys()


def ask(client, branch, method, **params):
    """A request of a chain: whether the client has got it."""
    call, got = InFlightRequest(method, Originator()), len(client.port.got)
    (branch or client.router.first).request(call, method, dumps(params))
    return len(client.port.got) > got


def tell(client, branch, *sessions):
    """Updates of a chain, alone and in a batch: the sessions of those that the client has got."""
    port, got = branch or client.router.first, len(client.port.got)
    updates = [dumps({"sessionId": each, "update": {"n": 1}}) for each in sessions]
    for each in updates:
        port.notify("session/update", each)
    port.notify_batch(NotificationBatch("session/update", updates))
    return [session_id_of(params) for _, params in client.port.got[got:]]


def test_a_chain_speaks_for_no_session_of_another_one(client):
    """Past its `permissions`. Sessions of no chain may be those of a subagent."""
    client.open_sessions["a1"] = None
    client.open("b1")
    other = client.new_branch(RecordingPort())
    client.open("c1", other)
    client.request("session/load", sessionId="a2")
    announce(client, "b1", "child of b1")
    announce(client, "a1", "child of a1", client.router.first)
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
        b'{"sessionId":"b1","update":{"sessionId":"a1","sessionId":"b2"}}',
        b'{"sessionId":"b1","update":{"senderSessionId":"a1"}}',
    ],
    ids=[
        *("twice", "escaped", "spelled differently", "announced", "escaped announcement"),
        *("half an emoji", "announced twice", "sender"),
    ],
)
def test_a_session_of_another_chain_cannot_be_hidden(client, params):
    client.open_sessions["a1"] = None
    client.open("b1")
    client.port.got.clear()
    client.branch.notify("session/update", params)
    client.branch.notify_batch(NotificationBatch("session/update", [params]))

    assert client.port.got == []


def test_a_chain_uses_only_its_own_terminals_and_mcp_servers(client):
    other = client.new_branch(RecordingPort())
    call = InFlightRequest("session/new", client.originator)
    server = {"type": "acp", "name": "n", "serverId": "server of b"}
    client.branch.open(call, "session/new", dumps({"cwd": "/\ud83d", "mcpServers": [server]}))
    for branch, name in ((client.branch, "b"), (None, "a")):
        for method, member in (("terminal/create", "terminalId"), ("mcp/connect", "connectionId")):
            call = InFlightRequest(method, Originator())
            (branch or client.router.first).request(call, method, b"{}")
            client.port.neighbour.respond(call, dumps({member: f"of {name}"}), None)

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
        other.request(call, "mcp/message", deep)
        client.router.request(call, "mcp/message", deep)
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


def test_two_agents_may_number_their_sessions_but_not_take_one_of_another(client):
    client.open("1")
    other = client.new_branch(RecordingPort())
    client.open("1", other)
    call = InFlightRequest("session/load", client.originator)
    other.open(call, "session/load", b'{"sessionId":"2"}')
    client.answer(call, other, sessionId="1")
    client.request("session/prompt", sessionId="1")

    assert methods(client.chain)[-1] == "session/prompt"
    assert client.router.sessions == {"1": client.branch, "2": other}


def test_a_guessed_session_is_not_kept_from_the_chain_that_opens_it(client):
    other = client.new_branch(RecordingPort())
    client.open("c1", other)
    for session in ("b1", "a1"):
        announce(client, "c1", session, other)
    client.open("b1")
    call = client.request("session/new")
    client.router.first.respond(call, b'{"sessionId":"a1"}', None)
    client.open_sessions["a1"] = None

    assert tell(client, client.branch, "b1") == ["b1"] * 2
    assert tell(client, None, "a1") == ["a1"] * 2
    assert tell(client, other, "b1", "a1") == []
