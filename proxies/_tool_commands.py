"""The command that a tool call runs: its text for a shell, and its words if they are certain. Pure.

A command is understood if its input has nothing but the command, and members that change neither
what it runs nor where (`timeout`, `description`). Variables of its environment, input for it, an
interpreter, leave of the sandbox: with these, no rule allows it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from proxies._tool_paths import key_words, strings

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
"""Members that change neither what a command runs nor where it may act. The directory is looked at
by itself."""
_STRUCTURED: Final = _words(
    "args arguments parsedcmd availabledecisions proposedexecpolicyamendment commandactions"
)
"""Those of them that may be lists or objects; in any other one such a value can be anything."""
_PROSE: Final = _words("description explanation reason justification title")
_SHELLS: Final = frozenset({"sh", "bash", "zsh", "dash", "ksh"})
_SHELL_PLACES: Final = frozenset({"", "/bin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"})
_CHAINS: Final = re.compile(r"[;&|`<>()$\\\x00-\x08\x0a-\x1f\x7f]")
"""What starts another command, redirects, expands or hides: also in quotes, as shells differ."""
_LONGEST: Final = 65_536
"""Maximum characters of a command that is split into words."""
_WORD: Final = re.compile(r"[^\s\"'`;&|<>()]+")
_PLAIN: Final = re.compile(r"[\w@%+=:,./^~-]+")
_DIRECTORIES: Final = _words("cwd workdir workingdirectory workingdir directory dirpath")


@attrs.frozen
class Commands:
    """The commands that a call carries."""

    texts: tuple[str, ...] = ()
    """Each command as a line for a shell."""
    words: tuple[str, ...] | None = None
    """The words of the command, if there is one and a shell cannot read them otherwise."""
    unclear: str | None = None
    """Why it is not certain what runs."""
    all_texts: tuple[str, ...] = ()
    """Every text in which a part of a command can stand, for rules that deny."""
    directories: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.all_texts)

    def searched(self, title: str | None) -> Iterator[str]:
        """The texts that a denying pattern is searched in: as they are, and without quoting."""
        for text in dict.fromkeys([*self.texts, *self.all_texts, *([title] if title else [])]):
            yield text
            bare = re.sub(r"\\\r?\n", "", text)
            bare = re.sub(r"\$\{?IFS\}?|\s+", " ", re.sub(r"[\"'\\]", "", bare)).strip()
            if bare != text:
                yield bare

    def file_words(self) -> Iterator[str]:
        """Everything in the commands that may be the name of a file, for rules that deny."""
        for text in self.searched(None):
            for found in _WORD.finditer(text):
                word = found[0]
                yield word
                yield word.strip("{}")
                yield from re.split("[=:@,]", word)
                yield re.sub(r"^/proc/(?:self|thread-self|[0-9]+)/(?:cwd/|root(?=/))", "", word)
                if word.startswith("-"):
                    yield word[2:]


def commands(given: Any, kind: str) -> Commands:
    """The commands in a tool's input."""
    found: list[tuple[str, ...] | str] = []
    elsewhere: list[str] = []
    unclear: str | None = None
    members = given if isinstance(given, dict) else {"": given}
    for key, value in members.items():
        name = "".join(key_words(key))
        if name in _PRIMARY and value:
            if (command := _command(value)) is None:
                unclear = f"`{key}` is no text and no list of texts"
            else:
                found.append(command)
        elif value and (
            name not in _HARMLESS or (isinstance(value, dict | list) and name not in _STRUCTURED)
        ):
            unclear = unclear or f"`{key}` may change what it does"
    in_order: list[str] = []
    for key, text in strings(given):
        name = "".join(key_words(key))
        if not _COMMAND_WORDS.isdisjoint([*key_words(key), name]) or (
            kind == "execute" and name not in _PROSE
        ):
            elsewhere.append(text)
            in_order.append(text)
        elif name in ("args", "arguments"):
            in_order.append(text)
    if elsewhere and len(in_order) > 1:  # the words of a command, one by one
        elsewhere.append(" ".join(in_order))
    for key in ("args", "arguments"):
        if found and (arguments := members.get(key)):
            if isinstance(arguments, str) or _is_words(arguments):
                found[0] = _with_arguments(found[0], arguments)
            else:
                unclear = f"`{key}` is no text and no list of texts"
    if len(found) > 1:
        unclear = f"it has {len(found)} commands"
    if elsewhere and not found:
        unclear = unclear or "its command is in no member that is known"
    texts = tuple(each if isinstance(each, str) else shlex.join(each) for each in found)
    every = tuple(elsewhere) + tuple(" ".join(each) for each in found if isinstance(each, tuple))
    words = None if len(found) != 1 or unclear else words_of(found[0])
    return Commands(texts, words, unclear, every, tuple(_directories(members)))


def is_chained(text: str) -> bool:
    """Whether a line may run more than one command, redirect, or expand variables."""
    return _CHAINS.search(text) is not None


def words_of(command: str | tuple[str, ...]) -> tuple[str, ...] | None:
    """The words of a command, if every shell reads it as these words; else None.

    Quotes are understood, and nothing else that is special to a shell: no variables, no patterns
    (a file can be called `--output=x`), no second command.
    """
    if isinstance(command, tuple):
        return None if any(is_chained(word) for word in command) else command
    if len(command) > _LONGEST or is_chained(command):
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
    """A line for a shell, or the words of a program that no shell reads."""
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
    """The command with the words of `args`, which belong to its program."""
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
