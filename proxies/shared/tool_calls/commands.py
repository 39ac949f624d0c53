"""The command of a tool call: its shell text, and its words if they are certain. Pure.

A command is certain if the input has only the command, and members that change neither what it runs
nor where (`timeout`, `description`). With any other member (variables, stdin, an interpreter, a
sandbox setting), no rule allows it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from proxies.shared.regex import compile_pattern
from proxies.shared.tool_calls.texts import key_words, strings

__all__ = ["Commands", "commands", "is_chained", "words_of"]


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
_CHAINS: Final = re.compile(r"[;&|`<>()$\\\x00-\x08\x0a-\x1f\x7f]")
"""Characters that start another command, redirect, expand or hide text. Also inside quotes, since
shells differ."""
_MAX_COMMAND: Final = 65_536
"""Maximum characters of a command that is split into words."""
_KNOWN_EXPANSION: Final = re.compile(r"\$\{?(?:HOME|PWD|IFS)\b\}?|\$\(pwd\)|`pwd`")
"""Home and working directory: rules that deny know them."""
_EXPANSION: Final = r"\$[\w{(@*]|`|(?:^|[\s=:,;|&(])\$'"
_AFTER_EXPANSION: Final = re.compile(r"(?:\$\w+|[)}`])/*([^\s\"'`;&|<>(){}$]+)")
"""The end of a word such as `$(pwd)/.env`."""
_EXPANDED_PROGRAM: Final = (
    r"(?:^|[;&|({`\n]|\b(?:sudo|env|exec|command|xargs|eval|then|do|else)\s)\s*"
    r"(?:\w+=\S*\s+)*[^\s;&|=$`]*(?:\$[\w{(@*']|`)"
)
_WORD: Final = re.compile(r"[^\s\"'`;&|<>()]+")
_PLAIN: Final = re.compile(r"[\w@%+=:,./^~-]+")
_DIRECTORIES: Final = _words("cwd workdir workingdirectory workingdir directory dirpath")


@attrs.frozen
class Commands:
    """The commands that a call carries."""

    texts: tuple[str, ...] = ()
    """Each command as a shell line."""
    words: tuple[str, ...] | None = None
    """The words of the command, if it is the only one and all shells split it alike."""
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
            bare = re.sub(r"\$\{?IFS\}?|\s+", " ", re.sub(r"[\"'\\]", "", bare)).strip()
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
        return any(
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
                found[0] = _with_arguments(found[0], arguments)
            else:
                unclear = f"`{key}` is neither a string nor a list of strings"
    if len(found) > 1:
        unclear = f"the call has {len(found)} commands"
    if elsewhere and not found:
        unclear = unclear or "the command is in an unknown member"
    texts = tuple(each if isinstance(each, str) else shlex.join(each) for each in found)
    every = tuple(elsewhere) + tuple(" ".join(each) for each in found if isinstance(each, tuple))
    words = None if len(found) != 1 or unclear else words_of(found[0])
    return Commands(texts, words, unclear, every, tuple(_directories(members)))


def is_chained(text: str) -> bool:
    """Whether a line may run more than one command, redirect, or expand variables."""
    return _CHAINS.search(text) is not None


def words_of(command: str | tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the words of a command if all shells split it alike, else `None`.

    Of shell syntax only quotes are accepted: no variables, no globs (a file can be named
    `--output=x`), no second command.
    """
    if isinstance(command, tuple):
        return None if any(is_chained(word) for word in command) else command
    if len(command) > _MAX_COMMAND or is_chained(command):
        return None
    words: list[str] = []
    for quoted in re.finditer(r"((?:'[^']*'|\"[^\"]*\"|[^ \t'\"])+)", command):
        word = ""
        for part in re.findall(r"'[^']*'|\"[^\"]*\"|[^ \t'\"]+", quoted[1]):
            if part[0] in "'\"":
                if "!" in part:
                    return None  # history, in some shells also in double quotes
                word += part[1:-1]
            elif _PLAIN.fullmatch(part) is None or (not word and part[0] in "=~%"):
                return None
            else:
                word += part
        words.append(word)
    odd = command.count("'") % 2 or command.count('"') % 2
    return None if odd or not words else tuple(words)


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
