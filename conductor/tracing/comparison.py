"""Comparison of two traces of the same work. Pure.

Messages are compared hop by hop and direction by direction: there the order is fixed, between hops
it may vary from run to run. Values that differ in every run are replaced first (`Normalizer`):
session ids by their number, other generated ids, UUIDs and times by their kind. Sizes and durations
are not compared.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, TypeAlias

import attrs

from conductor.tracing.json_diff import canonical_json
from conductor.tracing.links import Message
from conductor.tracing.records import NotificationRecord, Record, ResponseRecord

__all__ = ["IDS", "Comparison", "Difference", "Normalizer", "compare"]

IDS: Final = frozenset(
    {
        *("toolCallId", "messageId", "userMessageId", "terminalId", "requestId", "elicitationId"),
        *("connectionId", "serverId", "acpId", "traceparent", "tracestate"),
    }
)
"""Members with an id that differs in each run."""
_TIMES: Final = frozenset({"updatedAt", "createdAt", "timestamp", "startedAt", "endedAt"})
_MARKS: Final = "acp-conductor/"
"""Members of `_meta` that are between proxies of the conductor."""
_SHORTEST: Final = len("2026-01-31T14:03:20")
_GENERATED: Final = re.compile(
    r"(?P<uuid>\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b)"
    r"|(?P<time>\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)",
    re.IGNORECASE,
)
_MAX_COMPARED: Final = 400
"""Pairs of messages that are compared for their similarity; `_COMPARED` characters of each."""
_COMPARED: Final = 1000
_Pair: TypeAlias = tuple[int | None, int | None]
"""Indices of two equal items; or of one that was removed (second `None`) or added."""


@attrs.define(eq=False)
class Normalizer:
    """Replaces the values of one trace that differ in every run."""

    ignored: Collection[str] = ()
    """Names of members that are left out."""
    _sessions: dict[str, str] = attrs.field(factory=dict, init=False)

    def see_session(self, id: str) -> None:
        """Number a session id; to be called in the order of the trace."""
        self._sessions.setdefault(id, f"<session {len(self._sessions) + 1}>")

    def normalize(self, value: Any) -> Any:
        """A payload without values of its run. The value that is given is not changed."""
        try:
            return self._normalize(value)
        except RecursionError:
            return "<nested too deeply to be compared>"

    def _normalize(self, value: Any) -> Any:
        kind = type(value)
        if kind is str:
            if value in self._sessions:
                return self._sessions[value]
            is_candidate = len(value) >= _SHORTEST and "-" in value
            return _GENERATED.sub(_kind, value) if is_candidate else value
        if kind is dict:
            members = {
                self._sessions.get(name, name): self._member(name, each)
                for name, each in value.items()
                if name not in self.ignored and not name.startswith(_MARKS)
            }
            if members.get("_meta") == {}:
                del members["_meta"]
            return members
        return [self._normalize(each) for each in value] if kind is list else value

    def _member(self, name: str, value: Any) -> Any:
        if name in IDS and isinstance(value, str | int):
            return f"<{name}>"
        if name in _TIMES and isinstance(value, str | int | float):
            return "<time>"
        return self._normalize(value)


def _kind(found: re.Match[str]) -> str:
    return f"<{found.lastgroup}>"


@attrs.frozen
class Difference:
    """A message that is in one trace only, or in both with other payloads."""

    lane: str
    """Sender and receiver, as `client → notes`."""
    old: Message | None = None
    new: Message | None = None
    old_payload: Any = None
    """Normalized, as `new_payload`."""
    new_payload: Any = None


@attrs.frozen
class Comparison:
    """The differences of two traces, by hop and direction."""

    equal: int
    """Number of messages that are equal."""
    differences: Sequence[Difference]
    only_ends: bool
    """Whether the traces have different components: compared are the messages of client and agent,
    and what each component has sent that is in both."""


@attrs.frozen(eq=False)
class _ComparedMessage:
    message: Message
    payload: Any
    key: Hashable


def compare(
    old: Sequence[Record], new: Sequence[Record], ignored: Collection[str] = ()
) -> Comparison:
    """Compare two traces; members named in `ignored` are left out of all payloads."""
    only_ends = _hops(_messages(old)) != _hops(_messages(new))
    lanes_of: Callable[[Message], Iterable[str]] = _hop
    if only_ends:
        lanes_of = _ends_and_common(_messages(old), _messages(new))
    before, after = (_lanes(_messages(some), lanes_of, Normalizer(ignored)) for some in (old, new))
    equal, differences = 0, []
    for lane in [*before, *(each for each in after if each not in before)]:
        for difference in _aligned(lane, before.get(lane, []), after.get(lane, [])):
            if difference is None:
                equal += 1
            else:
                differences.append(difference)
    return Comparison(equal, differences, only_ends)


def _messages(records: Iterable[Record]) -> list[Message]:
    return [each for each in records if isinstance(each, Message)]


def _hops(messages: Iterable[Message]) -> set[frozenset[str]]:
    return {frozenset((each.sender, each.receiver)) for each in messages}


def _lanes(
    messages: Iterable[Message],
    lanes_of: Callable[[Message], Iterable[str]],
    normalizer: Normalizer,
) -> dict[str, list[_ComparedMessage]]:
    """The messages of each lane, in order."""
    lanes: dict[str, list[_ComparedMessage]] = defaultdict(list)
    for message in messages:
        if message.session is not None:
            normalizer.see_session(message.session)
        _, slash, number = message.chain.partition("/")
        for lane in lanes_of(message):
            name = f"chain {number}: {lane}" if slash else lane
            lanes[name].append(_entry(message, normalizer))
    return lanes


def _hop(message: Message) -> list[str]:
    return [f"{message.sender} → {message.receiver}"]


def _ends_and_common(
    old: Iterable[Message], new: Iterable[Message]
) -> Callable[[Message], list[str]]:
    """Lanes at the ends of the chains, and from components of both, unless these go to the ends in
    both."""
    common = {each.sender for each in old} & {each.sender for each in new}
    inner = {lane for each in (*old, *new) if not _end(each) for lane in _sent(each)}

    def lanes(message: Message) -> list[str]:
        sent = _sent(message) if message.sender in common else []
        return [*_end(message), *(lane for lane in sent if lane in inner)]

    return lanes


def _sent(message: Message) -> list[str]:
    if message.from_ in ("Client", "Agent", "conductor"):
        return []
    return [f"{message.sender}, toward the {message.toward}"]


def _end(message: Message) -> list[str]:
    if "Client" in (message.from_, message.to):
        return ["client → chain" if message.from_ == "Client" else "chain → client"]
    if "Agent" in (message.from_, message.to):
        return ["agent → chain" if message.from_ == "Agent" else "chain → agent"]
    return []


def _entry(message: Message, normalizer: Normalizer) -> _ComparedMessage:
    content = message.content
    payload = normalizer.normalize(message.head if content is None else content)
    return _ComparedMessage(message, payload, (*_title(message), canonical_json(payload)))


def _title(message: Message) -> tuple[Hashable, ...]:
    """Key of a message without its payload: equal for a message that only changed its payload."""
    match message:
        case ResponseRecord():
            return "response", message.method, message.is_error
        case NotificationRecord(update_kind=str(kind)):
            return "notification", message.method, kind
    return type(message).__name__, message.method, None


def _aligned(
    lane: str, old: list[_ComparedMessage], new: list[_ComparedMessage]
) -> Iterator[Difference | None]:
    """The differences of one hop and direction in order, and `None` for each equal message."""
    removed: list[_ComparedMessage] = []
    added: list[_ComparedMessage] = []
    for i, j in _align([each.key for each in old], [each.key for each in new]):
        if i is not None and j is not None:
            yield from _replaced(lane, removed, added)
            removed, added = [], []
            yield None
        elif i is not None:
            removed.append(old[i])
        elif j is not None:
            added.append(new[j])
    yield from _replaced(lane, removed, added)


def _replaced(
    lane: str, old: list[_ComparedMessage], new: list[_ComparedMessage]
) -> Iterator[Difference]:
    """Messages in place of others: those with the same title are paired."""
    titles = [[_title(each.message) for each in some] for some in (old, new)]
    pairs: Iterable[_Pair] = _align(*titles)
    if titles[0] != titles[1] and len(old) * len(new) <= _MAX_COMPARED:
        pairs = _most_similar(old, new)
    for i, j in pairs:
        difference = Difference(lane)
        if i is not None:
            difference = attrs.evolve(difference, old=old[i].message, old_payload=old[i].payload)
        if j is not None:
            difference = attrs.evolve(difference, new=new[j].message, new_payload=new[j].payload)
        yield difference


def _most_similar(old: list[_ComparedMessage], new: list[_ComparedMessage]) -> Iterator[_Pair]:
    """Pair each new message with the most similar old one of its title, in order."""
    first = 0
    for j, entry in enumerate(new):
        title = _title(entry.message)
        same = [i for i in range(first, len(old)) if _title(old[i].message) == title]
        if not same:
            yield None, j
            continue
        best = max(same, key=lambda i: _similarity(old[i], entry))
        yield from ((i, None) for i in range(first, best))
        yield best, j
        first = best + 1
    yield from ((i, None) for i in range(first, len(old)))


def _similarity(old: _ComparedMessage, new: _ComparedMessage) -> float:
    before, after = repr(old.payload)[:_COMPARED], repr(new.payload)[:_COMPARED]
    return SequenceMatcher(None, before, after, autojunk=False).quick_ratio()


def _align(old: Sequence[Hashable], new: Sequence[Hashable]) -> Iterator[_Pair]:
    """All items of both sequences, each once and in order."""
    pairs = enumerate(zip(old, new, strict=False))
    start = next((at for at, (x, y) in pairs if x != y), min(len(old), len(new)))
    yield from ((k, k) for k in range(start))
    blocks = SequenceMatcher(None, old[start:], new[start:]).get_opcodes()
    for tag, *ends in blocks:
        i, i_end, j, j_end = (start + each for each in ends)
        if tag == "equal":
            yield from zip(range(i, i_end), range(j, j_end), strict=True)
        else:
            yield from ((k, None) for k in range(i, i_end))
            yield from ((None, k) for k in range(j, j_end))
