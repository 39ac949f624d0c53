"""Fuzzers for the handshake and the chain file: each run ends in a decision or a located error."""

from hypothesis import given, settings
from hypothesis import strategies as st

from conductor.chainfile import load
from conductor.chainfile.model import ChainFile
from conductor.errors import ChainFileError
from conductor.routing.handshake import FailStart, Handshake, SendInit
from conductor.supervision.restart_policy import (
    Bypass,
    EndChain,
    Restart,
    RestartBudget,
    RestartPolicy,
)

reactions = st.one_of(
    st.tuples(
        st.just(Handshake.answered_with_error),
        st.sampled_from([-32601, -32600, -32603, 0]),
        st.text(max_size=10),
    ),
    st.tuples(st.just(Handshake.echoed_to_successor)),
    st.tuples(st.just(Handshake.answered_alone)),
    st.tuples(st.just(Handshake.closed_early)),
)


@given(
    st.sampled_from(["proxy", "agent"]),
    st.sampled_from([None, "proxy", "_proxy"]),
    st.lists(reactions, min_size=3, max_size=6),
)
def test_every_handshake_ends_in_success_or_an_error(role, dialect, reactions):
    """However a component reacts, it is asked at most once in each dialect."""
    handshake = Handshake(role, dialect)
    said = [handshake.method]
    for react, *members in reactions:
        decision = react(handshake, *members)
        if decision is None or isinstance(decision, FailStart):
            break
        assert isinstance(decision, SendInit)
        said.append(handshake.method)
    else:
        raise AssertionError("it goes on for ever")
    assert len(said) == len(set(said)) <= 2


@given(
    st.sampled_from(["proxy", "agent"]),
    st.sampled_from(["restart", "bypass", "end_chain"]),
    st.booleans(),
    st.integers(0, 5),
    st.floats(0.1, 100),
    st.lists(st.tuples(st.floats(0, 50), st.floats(0, 1)), max_size=30),
)
def test_a_restart_policy_never_restarts_more_often_than_its_budget(
    role, on_failure, required, count, within, failures
):
    restart_policy = RestartPolicy(role, on_failure, RestartBudget(count, within), required)
    now, restarts = 0.0, []
    for pause, jitter in failures:
        now += pause
        match restart_policy.after_failure(now, jitter):
            case Restart(delay):
                assert on_failure == "restart"
                assert 0 < delay <= 10
                restarts.append(now)
            case Bypass():
                assert role == "proxy"
                assert not required
            case EndChain():
                assert required or role == "agent" or on_failure == "end_chain"
        assert sum(now - then < within for then in restarts) <= count


WORDS = ["version", "name", "proxies", "agent", "run", "use", "chain", "connect", "with", "env",
         "restarts", "3 in 60s", "on_failure", "bypass", "required", "yes", "null", "10s", "-1",
         "${HOME}", "${", "$$", "&a", "*a", "!!python/object:os.system", "<<", "- ", ": ", "\n",
         "\n  ", "\n    - ", "[", "]", "{", "}", "'", '"', "#", "|", ">", "%", "\t", "\x85",
         "limits", "max_batch", "mcp_bridge", "1e999", "0x1F", "~"]  # fmt: skip


@given(st.one_of(st.lists(st.sampled_from(WORDS), max_size=25).map("".join), st.text(max_size=60)))
@settings(max_examples=150)
def test_a_chain_file_is_read_or_every_mistake_has_a_place(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "fuzzed.yaml"
    path.write_bytes(text.encode(errors="surrogatepass"))
    try:
        found = load(str(path))
    except ChainFileError as exc:
        found = exc
    if isinstance(found, ChainFileError):
        assert found.diagnostics
        assert all(str(path) in str(problem) for problem in found.diagnostics)
    else:
        assert isinstance(found, ChainFile)
