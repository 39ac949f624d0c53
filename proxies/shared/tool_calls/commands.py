"""The command of a tool call: its shell text, and the simple commands in it. Pure.

Shell lines are read by tree-sitter's grammar of bash. They are plain if they have only words and
quoted text, `|`, `&&`, `||`, `;`, line breaks and `2>&1`: then it is known what they run.

A command is certain if the input has only the command, and members that change neither what it runs
nor where (`timeout`, `description`). With any other member (variables, stdin, an interpreter, a
sandbox setting), no rule allows it.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import attrs

from proxies.shared.regex import compile_pattern
from proxies.shared.tool_calls.texts import key_words, strings

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

__all__ = ["Commands", "SimpleCommand", "commands", "simple_commands"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PRIMARY: Final = frozenset({"command", "cmd"})
_COMMAND_WORDS: Final = _words(
    "command commands cmd cmds cmdline commandline script scripts argv exec executable shell"
    " bash powershell program"
)
"""A member with one of these words in its name carries a command."""
_HARMLESS: Final = _words(
    "args arguments description explanation reason justification title timeout timeoutms"
    " timeoutsec timeoutseconds timeoutinms yieldtimems maxoutputtokens maxoutputlength"
    " isbackground runinbackground background blocking wait login tty callid turnid approvalid"
    " processid startedatms environmentid cwd workdir workingdirectory workingdir directory"
    " dirpath parsedcmd availabledecisions proposedexecpolicyamendment commandactions delayms"
)
"""Members that change neither what a command runs nor where it may act. The directory is
checked separately."""
_STRUCTURED: Final = _words(
    "args arguments parsedcmd availabledecisions proposedexecpolicyamendment commandactions"
)
"""Members of `_HARMLESS` that may be lists or objects; in others, such a value is not harmless."""
_ARGUMENTS: Final = _words("args arguments")
_PROSE: Final = _words("description explanation reason justification title")
_SHELLS: Final = frozenset({"sh", "bash", "zsh", "dash", "ksh"})
_SHELL_PLACES: Final = frozenset({"", "/bin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"})
_HIDDEN: Final = re.compile(r"[$`\\\x00-\x08\x0b-\x1f\x7f]")
"""Characters that expand or hide text in some shells, also inside quotes."""
_IN_WORD: Final = re.compile(r"[;&|`<>()$\\\x00-\x08\x0a-\x1f\x7f]")
"""Characters that a word of a list must not have: the agent may pass it to a shell."""
_MAX_COMMAND: Final = 65_536
"""Maximum characters of a command that is read."""
_MAX_OPERATORS: Final = 1000
"""Maximum operators, wildcards and line breaks of a line that is parsed: the time grows with
the square of their number."""
_MAX_PLACES: Final = 64
"""Maximum directories of a line: each `cd` doubles them, as it may fail."""
_STRUCTURE: Final = frozenset({"program", "list", "pipeline", "redirected_statement"})
_SEPARATORS: Final = frozenset({"|", "&&", "||", ";"})
_LITERALS: Final = frozenset({"word", "number", "raw_string", "string", "concatenation"})
_KNOWN_EXPANSION: Final = re.compile(r"\$\{?(?:HOME|PWD|IFS)\b\}?|\$\(pwd\)|`pwd`")
"""Home and working directory: rules that deny know them."""
_EXPANSION: Final = (
    r"\$[\w{(@*]|`|(?:^|[\s=:,;|&(])\$'"
    r"|(?:^|[\s;|&({])(?:cd|pushd|popd)[ \t]*(?:$|[-+;|&)}\n])"
)
"""What a shell replaces; also `cd` without a directory, which is `$HOME`, or `$OLDPWD`."""
_AFTER_EXPANSION: Final = re.compile(r"(?:\$\w+|[)}`])/*([^\s\"'`;&|<>(){}$]+)")
"""The end of a word such as `$(pwd)/.env`."""
_EXPANDED_PROGRAM: Final = (
    r"(?:^|[;&|({`\n]|\b(?:sudo|env|exec|command|xargs|eval|then|do|else)\s"
    r"|(?:^|[^\w-])(?:if|elif|while|until|time|coproc|nohup|builtin|!)\s)\s*"
    r"(?:-\S+\s+|\w+\+?=(?:'[^']*'|\"[^\"]*\"|\S)*\s+|[0-9]*[<>]+&?[ \t]*\S+\s+)*"
    r"[^\s;&|=$`]*(?:\$[\w{(@*']|`)"
)
_WORD: Final = re.compile(r"[^\s\"'`;&|<>()]+")
_PLAIN: Final = re.compile(r"[\w@%+=:,./^~-]+")
_DIRECTORIES: Final = _words("cwd workdir workingdirectory workingdir directory dirpath")


@attrs.frozen
class SimpleCommand:
    """A program with its arguments."""

    text: str
    """As in the shell line, without redirections."""
    words: tuple[str, ...] | None
    """Its words, if all shells read them alike: no variables, no globs (a file can be named
    `--output=x`)."""


@attrs.frozen
class Commands:
    """The commands that a call carries."""

    texts: tuple[str, ...] = ()
    """Each command as a shell line."""
    simple: tuple[SimpleCommand, ...] | None = None
    """What the command runs, if it is the only one and plain."""
    unclear: str | None = None
    """Why it is not certain what runs."""
    all_texts: tuple[str, ...] = ()
    """Every text that may contain a part of a command, for rules that deny."""
    directories: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.all_texts)

    def searched(self, title: str | None) -> Iterator[str]:
        """Yield the texts in which rules that deny search: as they are, and without quoting."""
        for text in dict.fromkeys([*self.texts, *self.all_texts, *([title] if title else [])]):
            yield text
            bare = re.sub(r"\\\r?\n", "", text)
            bare = re.sub(r"\$\{?IFS\}?|\s+", " ", re.sub(r"\$?[\"']|\\", "", bare)).strip()
            if bare != text:
                yield bare

    def file_words(self) -> Iterator[str]:
        """Yield all words, and parts of words, that may be file names, for rules that deny."""
        for text in self.searched(None):
            for found in _WORD.finditer(text):
                word = found[0]
                yield word
                yield word.lstrip("$")  # `$'.env'` without its quotes
                yield word.strip("{}")
                yield from re.split("[=:@,]", word)
                yield re.sub(r"^/proc/(?:self|thread-self|[0-9]+)/(?:cwd/|root(?=/))", "", word)
                if word.startswith("-"):
                    yield word[2:]
            for found in _AFTER_EXPANSION.finditer(text):
                yield found[1]

    def expands(self) -> bool:
        """Whether a shell may put words into a command that its text does not show."""
        return "\0" in self.directories or any(
            compile_pattern(_EXPANSION).search(_KNOWN_EXPANSION.sub("", text))
            for text in self.searched(None)
        )

    def expands_program(self) -> bool:
        """Whether the name of a program that is started is not in the text."""
        return any(compile_pattern(_EXPANDED_PROGRAM).search(text) for text in self.searched(None))


def commands(given: Any, kind: str) -> Commands:
    """Return the commands in a tool's input."""
    found: list[tuple[str, ...] | str] = []
    elsewhere: list[str] = []
    apart: list[str] = []
    """Words beside the command."""
    unclear: str | None = None
    members = given if isinstance(given, dict) else {"": given}
    for key, value in members.items():
        name = "".join(key_words(key))
        if name in _PRIMARY and value:
            if (command := _command(value)) is None:
                unclear = f"`{key}` is neither a string nor a list of strings"
                elsewhere.append(f"{key}: {str(value)[:_MAX_COMMAND]}")
            else:
                found.append(command)
        elif value and (
            name not in _HARMLESS or (isinstance(value, dict | list) and name not in _STRUCTURED)
        ):
            unclear = unclear or f"`{key}` may change what the command does"
    in_order: list[str] = []
    for key, text in strings(given):
        name = "".join(key_words(key))
        if not _COMMAND_WORDS.isdisjoint([*key_words(key), name]) or (
            kind == "execute" and name not in _PROSE
        ):
            elsewhere.append(text)
            in_order.append(text)
        elif name in _ARGUMENTS:
            in_order.append(text)
    if elsewhere and len(in_order) > 1:  # a command that is split into words
        elsewhere.append(" ".join(in_order))
    for key, arguments in members.items():
        if found and arguments and "".join(key_words(key)) in _ARGUMENTS:
            if isinstance(arguments, str) or _is_words(arguments):
                apart += [] if isinstance(arguments, str) else arguments
                found[0] = _with_arguments(found[0], arguments)
            else:
                unclear = f"`{key}` is neither a string nor a list of strings"
    if len(found) > 1:
        unclear = f"the call has {len(found)} commands"
    if elsewhere and not found:
        unclear = unclear or "the command is in an unknown member"
    texts = tuple(each if isinstance(each, str) else shlex.join(each) for each in found)
    every = tuple(elsewhere) + tuple(" ".join(each) for each in found if isinstance(each, tuple))
    is_plain = len(found) == 1 and not unclear and not _IN_WORD.search("".join(apart))
    simple = simple_commands(found[0]) if is_plain else None
    directories = (*_directories(members), *_changed_directories(simple or ()))
    return Commands(texts, simple, unclear, every, directories)


def simple_commands(command: str | tuple[str, ...]) -> tuple[SimpleCommand, ...] | None:
    """The commands in a shell line, or in a list of words; `None` if it is not plain.

    `bash -lc TEXT` counts as the commands in TEXT.
    """
    if isinstance(command, tuple):
        if any(_IN_WORD.search(word) for word in command):
            return None
        return (SimpleCommand(shlex.join(command), command),)
    if len(command) > _MAX_COMMAND or _HIDDEN.search(command) is not None:
        return None
    if sum(map(command.count, "|<>()[]{}&;@?\n")) > _MAX_OPERATORS:
        return None
    source = command.encode(errors="surrogatepass")
    found: list[SimpleCommand] = []
    waiting, end = [_parser().parse(source).root_node], 0
    if waiting[0].has_error:
        return None
    while waiting:
        node = waiting.pop()
        kind = node.type
        if source[end : node.start_byte].strip(b" \t\n"):
            return None
        if kind in _STRUCTURE:
            waiting += reversed(node.children)
            continue
        end = node.end_byte
        if kind == "command":
            each = _simple_command(node)
            if each is None:
                return None
            inner = _command(list(each.words or ()))
            more = simple_commands(inner) if isinstance(inner, str) else (each,)
            if more is None:
                return None
            found += more
        elif kind not in _SEPARATORS and source[node.start_byte : end] != b"2>&1":
            return None
    return tuple(found) if found and not source[end:].strip() else None


@cache
def _parser() -> Parser:
    from tree_sitter import Language, Parser  # lazy: a library of C
    from tree_sitter_bash import language

    return Parser(Language(language()))


def _simple_command(node: Node) -> SimpleCommand | None:
    parts = [each.children[0] if each.type == "command_name" else each for each in node.children]
    if any(each.type not in _LITERALS for each in parts):
        return None
    words = [_word(each) for each in parts]
    known = tuple(each for each in words if each is not None)
    return SimpleCommand(_text(node), known if len(known) == len(words) else None)


def _word(node: Node) -> str | None:
    """The text of a word without its quotes; `None` if a shell may change it."""
    word = ""
    pieces = node.children if node.type == "concatenation" else [node]
    for piece in pieces:
        text = _text(piece)
        if piece.type in ("raw_string", "string"):
            if "!" in text or text[0] not in "'\"":
                return None  # history, in some shells also in double quotes; `$"…"`
            word += text[1:-1]
        elif _PLAIN.fullmatch(text) is None or (not word and text[0] in "=~%"):
            return None
        else:
            word += text
    return word


def _text(node: Node) -> str:
    return (node.text or b"").decode(errors="surrogatepass")


def _command(value: Any) -> str | tuple[str, ...] | None:
    """Return a shell line, or the words of a command that runs without a shell."""
    if isinstance(value, str):
        return value
    if not _is_words(value):
        return None
    if len(value) == 3 and value[1] in ("-c", "-lc"):
        place, _, program = value[0].rpartition("/")
        if program in _SHELLS and place in _SHELL_PLACES:
            return str(value[2])
    return tuple(value)


def _with_arguments(
    command: tuple[str, ...] | str, arguments: str | list[str]
) -> tuple[str, ...] | str:
    """Append the arguments in `args` to the command."""
    if isinstance(arguments, str):
        line = command if isinstance(command, str) else shlex.join(command)
        return f"{line} {arguments}"
    if isinstance(command, tuple):
        return (*command, *arguments)
    if re.search(r"\s", command):
        return f"{command} {shlex.join(arguments)}"
    return (command, *arguments)


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def _directories(members: Mapping[str, Any]) -> Iterator[str]:
    for key, value in members.items():
        if value and "".join(key_words(key)) in _DIRECTORIES:
            yield value if isinstance(value, str) else "\0"


def _changed_directories(simple: tuple[SimpleCommand, ...]) -> Iterator[str]:
    """Where commands after `cd` may run; a null character is a directory that is not known."""
    places = [""]
    for each in simple:
        if each.words is not None and each.words[0] in ("cd", "pushd", "popd"):
            known = len(each.words) == 2 and not each.words[1].startswith(("-", "+"))
            to = each.words[1] if known and len(places) < _MAX_PLACES else "\0"
            places += [os.path.join(place, to) for place in places]
            if to == "\0":
                break
    yield from places[1:]
