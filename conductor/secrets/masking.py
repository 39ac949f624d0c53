"""Mask secrets, in texts (`redact`: logs, errors, stderr, reports) and in JSON (`mask`: traces).

Secrets are found by value (`register_secrets`), by format (`formats`), and by what is beside them:

- in places of both schemas: values of `env` and `headers`, members of `authenticate` and
  `auth/login`;
- elsewhere, as in `_meta`, by name: a string, list or object in a member that is named like a
  secret, `{"name": "token", "value": …}`, `["--token", …]`; and in texts `TOKEN=…`, `"token": "…"`,
  `--token …`, `X-Auth-Token: …`, and the lines `token=…` and `token: …`.

The JSON may be cut at its end. A search for some eighty literals decides which places are looked
at, so that text without secrets costs 0.3 µs for 100 bytes and 0.3 ms for a megabyte. It is made by
a few automata that are small enough for vector instructions (`_MAX_LITERALS`).

`names_a_secret` and `component_secrets` of `chain.build` decide which values are registered. Values
under six characters are not masked: masking `1` or `debug` would hide nothing and garble the text.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any, Final, TypeAlias

from ahocorasick_rs import MATCHKIND_LEFTMOST_FIRST, BytesAhoCorasick

from conductor.secrets.formats import (
    LITERALS,
    LONG_NAMES,
    SHORT_NAMES,
    Found,
    Span,
    looks_like_a_secret,
    names_a_secret,
    span_at,
)

__all__ = [
    "MASK",
    "mask",
    "redact",
    "redact_value",
    "register_environment",
    "register_secrets",
    "take_secret",
]

MASK: Final = "***"
_MASK: Final = MASK.encode()
_MIN_LENGTH: Final = 6
_MAX_LITERALS: Final = 60
"""Literals in one automaton. The library uses vector instructions for 64 literals at most."""
_DIGITS: Final = b"0123456789.+-eE"
_NUMBER_BEFORE: Final = re.compile(rb'(?:(?:"\s*:|[\[,])\s*|[\d.+\-eE])\Z')
"""What is before a number, or a part of one, in JSON."""
_VOCABULARY: Final = frozenset(
    [
        *("request", "response", "notification", "handler", "stderr", "protocol", "method"),
        *("session", "params", "payload", "sender", "receiver", "elapsed", "wire_id", "chain"),
        *("masked", "cancelled", "is_error", "error_domain", "mcp_server", "conductor"),
        *("components", "version", "location", "client", "plugin", "process", "remote", "parent"),
        *("forwarded", "answered", "dropped", "failed", "component", "message", "waited"),
        *("outcome", "fields", "payloads", "successor", "initialize"),
    ]
)
"""Words of the format of trace files: masking them would make a file unreadable."""

Check: TypeAlias = Callable[[bytes, int], Found]
"""Gets the place of a literal that was found."""

_secrets: frozenset[str] = frozenset()


def register_secrets(values: Iterable[str]) -> None:
    """Mask these values from now on."""
    global _secrets
    # A value of several lines is printed line by line, and JSON escapes some characters.
    forms = {form for value in values for line in value.splitlines() for form in _escaped(line)}
    new = {form for form in forms - _VOCABULARY if len(form) >= _MIN_LENGTH} - _secrets
    if new:
        _secrets |= new


def register_environment(environ: Mapping[str, str]) -> None:
    """Register the values of all environment variables that are named like a secret."""
    register_secrets(value for name, value in environ.items() if names_a_secret(name))


def redact(text: str) -> str:
    """A text with its secrets replaced by `***`."""
    encoded = json.dumps(text, ensure_ascii=False).encode(errors="surrogatepass")
    masked = mask(encoded)
    return text if masked is encoded else str(json.loads(masked.decode(errors="surrogatepass")))


def redact_value(value: Any) -> Any:
    """A JSON value, or the value of a log field, with the secrets in its texts masked."""
    match value:
        case str():
            return redact(value)
        case Mapping():
            return {name: redact_value(inner) for name, inner in value.items()}
        case list() | tuple() | set() | frozenset():
            return [redact_value(inner) for inner in value]
    return value


def mask(data: bytes, *, are_lines: bool = False) -> bytes:
    """JSON with its secrets replaced by `***`, and numbers by ones; the same object if it has none.
    Changed lines of a trace file say so (`masked`)."""
    spans = _spans(data)
    if not spans:
        return data
    parts: list[bytes] = []
    done, line_end = 0, -1
    for start, end in spans:
        if are_lines and start > line_end:
            done = _finish_line(parts, data, done, line_end)
            line_end = data.find(b"\n", start)
        parts += (data[done:start], _replacement(data, start, end))
        done = end
    done = _finish_line(parts, data, done, line_end)
    return b"".join((*parts, data[done:]))


def take_secret(name: str) -> str | None:
    """The value of a variable, `None` if unset. Removes it from `os.environ`, from the environment
    of children, and from `/proc/PID/environ`, which shows the initial bytes to every process of the
    same user."""
    value = os.environ.get(name)
    if value is None:
        return None
    import ctypes  # takes 5 ms, and most programs have no such variable

    libc = ctypes.CDLL(None)
    libc.getenv.argtypes, libc.getenv.restype = [ctypes.c_char_p], ctypes.c_void_p
    address = libc.getenv(os.fsencode(name))
    if address:
        ctypes.memset(address, 0, len(os.fsencode(value)))
    del os.environ[name]
    return value


def _escaped(line: str) -> set[str]:
    forms = {line, line.strip()}
    for _ in range(2):  # a trace has lines of JSON in its texts
        forms |= {json.dumps(f, ensure_ascii=only)[1:-1] for f in forms for only in (True, False)}
    return forms


def _replacement(data: bytes, start: int, end: int) -> bytes:
    if (
        data[start:end].strip(_DIGITS)
        or _NUMBER_BEFORE.search(data, max(0, start - 8), start) is None
    ):
        return _MASK
    return b"1" * (end - start)


def _finish_line(parts: list[bytes], lines: bytes, done: int, end: int) -> int:
    """Append the rest of a line in which something was masked; returns its end."""
    if end < 0:
        return done
    rest = lines[done:end]
    if rest.endswith(b"}"):
        rest = rest[:-1] + b',"masked":true}'
    parts.append(rest)
    return end


def _spans(data: bytes) -> list[Span]:
    """The secrets in some JSON, in order, overlapping ones as one."""
    found: list[Span] = []
    for search, checks in _searches(_secrets):
        if matches := search.find_matches_as_indexes(data):
            until: dict[int, int] = {}
            for index, start, _ in matches:
                if start >= until.get(index, 0):
                    spans, until[index] = checks[index](data, start)
                    found += spans
    if len(found) < 2:
        return found
    merged: list[Span] = []
    for start, end in sorted(found):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged


@lru_cache(maxsize=1)
def _searches(known: frozenset[str]) -> list[tuple[BytesAhoCorasick, list[Check]]]:
    """The automata, and what is called for each of their literals."""
    values = sorted((each.encode(errors="surrogatepass") for each in known), key=len, reverse=True)
    checks: list[tuple[bytes, Check]] = [
        *((each, partial(span_at, literal=each)) for each in LITERALS),
        *((each, partial(_place_spans, literal=each)) for each in _PLACES),
        *((each, _member_spans) for each in _NAMES),
    ]
    # The fewer literals begin like usual text, the faster is a search.
    checks.sort(key=lambda each: (_is_lower(each[0]), len(each[0])))
    parts = ([(each, partial(_known, literal=each)) for each in values], checks)
    some = [
        each[at : at + _MAX_LITERALS] for each in parts for at in range(0, len(each), _MAX_LITERALS)
    ]
    return [
        (
            BytesAhoCorasick([literal for literal, _ in each], MATCHKIND_LEFTMOST_FIRST),
            [check for _, check in each],
        )
        for each in some
    ]


def _is_lower(literal: bytes) -> bool:
    return literal[:3].isalpha() and not literal[:3].isupper()


def _known(data: bytes, at: int, literal: bytes) -> Found:
    return ((at, at + len(literal)),), at


# --- secrets by what is beside them ---

_PLACES: Final = (b'"env', b'nvironment"', b'eaders"', b'"method":"auth')
"""Literals to search for, for `_place_spans`."""
_NAMES: Final = tuple(
    each.encode()
    for each in dict.fromkeys(
        [
            *(tail for name in LONG_NAMES for tail in (name[1:], name[1:].upper())),
            *(f'{form}"' for name in SHORT_NAMES for form in (name, name.title(), name.upper())),
            *(f"{name.upper()}=" for name in SHORT_NAMES),
            *(f"{form}{sign}" for form in ("key", "Key", "KEY") for sign in ("\\", "=", ":")),
            "key ",
        ]
    )
)
"""Literals to search for, for `_member_spans`."""
_NAME: Final = rb"[\w.\-/]{0,80}"
_BEFORE: Final = re.compile(rb"[\w.\-/]{0,80}\Z")
_AFTER: Final = re.compile(rb"""(%b)(?:\\*["'])?\s*[:=,]""" % _NAME)
_STRING: Final = rb'"((?:[^"\\]|\\.)*)'
"""A string without its closing quote, which may be cut."""
_VALUE: Final = re.compile(rb'"\s*:\s*(?:(?P<open>[\[{])|%b)' % _STRING, re.DOTALL)
_BESIDE: Final = re.compile(rb'"\s*,\s*"value"\s*:\s*%b' % _STRING, re.DOTALL)
_ARGUMENT: Final = re.compile(rb'"\s*,\s*%b' % _STRING, re.DOTALL)
_SIGN: Final = re.compile(rb"""(?P<quote>\\*["'])?(?P<sign>\s*[:=]\s*)(?P<value_quote>\\*["'])?""")
_TEXT_VALUE: Final = re.compile(rb"""(?P<value>[^\s"'\\,;&<>(){}\[\]$*]{6,})(?P<call>[(\[])?""")
_REST: Final = re.compile(rb"""[^\s"'\\,;&<>(){}\[\]$*]*""")
_LONGEST_NAME: Final = 200
_NEAR: Final = 64
"""Bytes of a value in a text by which it is decided whether it is a secret."""
_HEADER: Final = re.compile(
    rb":[ ]*(?:[A-Za-z]+[ ]+)?"
    rb"(?P<value>(?=[^\s\"'\\]*[\d=]|[^\s\"'\\]{16})[^\s\"'\\,;&<>(){}\[\]$*]{6,})"
)
_HEADER_NAME: Final = re.compile(r"(?:Set-)?Cookie|(?:Proxy-)?Authorization|[A-Z]\w*(?:-[A-Z]\w*)+")
_FLAG_NAME: Final = re.compile(rb"--[\w.\-]{0,40}\Z")
_FLAG_VALUE: Final = re.compile(
    rb"(?P<name>[\w.\-]{0,40})[ ]+(?P<value>[^\s\"'\\,;&<>(){}\[\]$*-]"
    rb"[^\s\"'\\,;&<>(){}\[\]$*]{5,})"
)
_LINE_START: Final = re.compile(rb"""(?:\\[nrt]|(?<!\\)")[ \t+-]*(?:export )?\Z""")
_LINE_END: Final = re.compile(rb"""(?:\\*["'])?[ ]*(?:\\[nr]|"|\Z)""")
_WORD_START: Final = re.compile(rb"""(?:\\[nrt]|["'\s])[+-]?\Z""")
_WORD_END: Final = re.compile(rb"""\\*["']?(?:\s|\\[nrt]|"|\Z)""")
_BREAK: Final = re.compile(rb"\\[nrt]")
"""A line break in JSON; its letter seems to belong to the name after it."""
_DIGIT: Final = re.compile(r"\d")
_PASSWORD: Final = re.compile(r"passw(?:or)?d|passphrase|pwd\Z|secret\Z", re.IGNORECASE)
_WORD: Final = re.compile(
    r"boolean|bytes|default|disabled|enabled|expired|missing|number|object|optional|password|"
    r"placeholder|prompt|redacted|required|secret|string|undefined|unknown"
)
"""Words that stand beside the name of a password and are none."""
_OPENED: Final = re.compile(rb'nv(?:ironment)?(?:[Vv]ar\w*)?"\s*:\s*([\[{])|eaders"\s*:\s*([\[{])')
_AUTHENTICATION: Final = re.compile(
    rb'"method":"(?:authenticate|auth/login)"[^\n]{0,4000}?"(?:params|payload)":'
)
_HEAD: Final = re.compile(rb'[^\n]{0,4000}?"head":%b' % _STRING)
_TOKEN: Final = re.compile(rb'%b"?|[\[\]{}]' % _STRING, re.DOTALL)
_COLON: Final = re.compile(rb"\s*:")
_SCHEMA: Final = re.compile(rb'\s*"(?:type|description|title|\$ref|anyOf|oneOf|const|enum)"')
_AMBIGUOUS: Final = frozenset(
    {"auth", "key", "keys", "pass", "pat", "pin", "salt", "signature", "terminal-auth"}
)
"""Names that more often belong to something else: the value has to look like a secret."""
_HARMLESS: Final = frozenset({"authMethods", "authMethodId", "methodId", "progressToken"})
_DESCRIPTIONS: Final = frozenset({b"methodId", b"id", b"name", b"type", b"label", b"description"})


def _place_spans(data: bytes, at: int, literal: bytes) -> Found:
    """The secrets in the place of the schema that begins with a literal of `_PLACES` here."""
    if literal == b'"method":"auth':
        return _authentication(data, at)
    found = _OPENED.match(data, data.index(b"nv" if literal != b'eaders"' else b"eaders", at))
    if found is None:
        return (), at
    start = found.start(found.lastindex or 0)
    is_list = data[start : start + 1] == b"["
    keeps = {b"name"} if is_list else frozenset[bytes]()
    strings, until = _strings(data, start, lambda name: name in keeps)
    if not is_list:
        return strings, until
    equals = ((data.find(b"=", first, end), first, end) for first, end in strings)
    return [(sign + 1 if sign > 0 else first, end) for sign, first, end in equals], until


def _member_spans(data: bytes, at: int) -> Found:
    """The secrets beside the name with a literal of `_NAMES` at this place."""
    after = _AFTER.match(data, at)
    if after is None:  # most words of a text end here
        is_flag = data.find(b"--", max(0, at - 40), at) >= 0
        return list(_flag(data, at)) if is_flag else (), at
    end = after.end(1)
    before = _BEFORE.search(data, max(0, at - 80), at)
    start = at if before is None else before.start()
    name = data[start:end].decode(errors="replace")
    if _BREAK.match(data, start - 1) is not None and names_a_secret(name[1:]):
        start, name = start + 1, name[1:]
    if name in _HARMLESS or not names_a_secret(name.rpartition("/")[2]):
        return (), at
    is_member = data[start - 1 : start] == b'"' and data[start - 2 : start - 1] != b"\\"
    if is_member and data[end : end + 1] == b'"':
        return _member(data, name, end, at)
    found = _in_text(data, name, start, end)
    # A name at the end of a value may have one of its own.
    return ((), at) if found is None else ((found,), max(at, found[1] - _LONGEST_NAME))


def _in_text(data: bytes, name: str, start: int, end: int) -> Span | None:
    """The secret behind the name that begins and ends here, in a text."""
    if _HEADER_NAME.fullmatch(name):
        header = _HEADER.match(data, end, end + _NEAR)
        if header is not None:
            return _whole(data, header.span("value"), end + _NEAR)
    sign = _SIGN.match(data, end)
    if sign is None:
        return None
    near = sign.end() + _NEAR
    found = _TEXT_VALUE.match(data, sign.end(), near)
    if found is None or found["call"]:
        return None
    value = found["value"].decode(errors="replace")
    is_quoted = sign["quote"] is not None and sign["value_quote"] is not None
    is_parameter = name == name.upper() or name.startswith("-") or data[start - 1] in b"?&"
    is_setting = sign["sign"] == b"=" and is_parameter  # else it is a line of a program
    is_certain = name.casefold() not in _AMBIGUOUS and _may_be_secret(name, value)
    is_line = is_certain and _is_line(data, start, sign["sign"], found.end(), near)
    if is_quoted or is_setting or is_line or looks_like_a_secret(value):
        return _whole(data, found.span("value"), near)
    return None


def _whole(data: bytes, span: Span, near: int) -> Span:
    """The span of a value of which only the beginning was read, up to `near`."""
    start, end = span
    rest = _REST.match(data, end) if end == near else None
    return start, end if rest is None else rest.end()


def _flag(data: bytes, at: int) -> Iterator[Span]:
    """The secret in `--token s3cret`, in a command."""
    before, value = _FLAG_NAME.search(data, max(0, at - 80), at), _FLAG_VALUE.match(data, at)
    if before is not None and value is not None:
        name = (before[0] + value["name"]).decode(errors="replace")
        if names_a_secret(name) and _may_be_secret(name, value["value"].decode(errors="replace")):
            yield value.span("value")


def _may_be_secret(name: str, value: str) -> bool:
    """Whether the value of a name in a text is not a word: it has a digit, or it is a password."""
    if _DIGIT.search(value) is not None:
        return True
    return _PASSWORD.search(name) is not None and not _WORD.fullmatch(value.casefold().strip(".:"))


def _is_line(data: bytes, start: int, sign: bytes, end: int, near: int) -> bool:
    """Whether name and value are a line of a file, `password: s3cret`, or `password=s3cret` between
    spaces, as in a log. `end` is that of the value, of which nothing behind `near` was read."""
    is_word = sign == b"="
    before, after = (_WORD_START, _WORD_END) if is_word else (_LINE_START, _LINE_END)
    return before.search(data, max(0, start - 60), start) is not None and (
        end == near or after.match(data, end) is not None
    )


def _member(data: bytes, name: str, end: int, at: int) -> Found:
    """The secrets in the value of a member; `end` is that of its name, `at` the literal in it."""
    is_certain = name.casefold() not in _AMBIGUOUS
    if (found := _VALUE.match(data, end)) is not None:
        if found["open"] is None:
            value = found[2].decode(errors="replace")
            if value and (is_certain or looks_like_a_secret(value)):
                return (found.span(2),), at
        elif is_certain and _SCHEMA.match(data, found.end()) is None:
            return _strings(data, found.start("open"), lambda name: False)
        return (), at
    beside = _BESIDE.match(data, end)
    if beside is None and name.startswith("-"):
        beside = _ARGUMENT.match(data, end)
    return (() if beside is None else (beside.span(1),)), at


def _authentication(data: bytes, at: int) -> Found:
    """Everything in an authentication message that is not a name."""
    found = _AUTHENTICATION.match(data, at)
    if found is None:
        return (), at
    if data[found.end() : found.end() + 1] == b"{":
        return _strings(data, found.end(), lambda name: name in _DESCRIPTIONS)
    head = _HEAD.match(data, at)
    return ((), at) if head is None else ((head.span(1),), head.end())


def _strings(data: bytes, start: int, is_kept: Callable[[bytes], bool]) -> Found:
    """The string values in the list or object that begins here, but those of kept members; and its
    end."""
    depth, name = 0, b""
    spans: list[Span] = []
    for found in _TOKEN.finditer(data, start):
        sign = found[0]
        if sign in (b"[", b"{"):
            depth += 1
        elif sign in (b"]", b"}"):
            depth -= 1
            if not depth:
                return spans, found.end()
        elif _COLON.match(data, found.end()) is not None:
            name = found[1]
        else:
            if found[1] and not is_kept(name):
                spans.append(found.span(1))
            name = b""
    return spans, len(data)
