"""A marked block at the end of the Emacs init file.

The block advises `acp-make-client`, through which agent-shell starts each agent, and puts the chain
before the agent's command. (`agent-shell-command-prefix` would also be put before shell commands.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs

from conductor.cli.install.formats import Edit, Launch

__all__ = ["ElispBlock", "elisp_string", "elisp_symbol"]


@attrs.frozen
class ElispBlock:
    """A block for all agents, or for the agent with the identifier `launch.wrapped`."""

    def install(self, text: str, launch: Launch) -> tuple[str, Sequence[Edit]]:
        newline = "\r\n" if "\r\n" in text else "\n"
        block = self.snippet(text, launch).replace("\n", newline)
        old = _pattern(launch.wrapped or launch.name)
        if old.search(text):
            return old.sub(lambda _: block, text, count=1), []
        separator = newline if text and not text.endswith("\n") else ""
        return f"{text}{separator}{block}", []

    def uninstall(self, text: str, name: str, edits: Sequence[Edit]) -> str | None:
        return _pattern(name).sub("", text) or None

    def snippet(self, text: str, launch: Launch) -> str:
        name = launch.wrapped or launch.name
        begin, end = _markers(name)
        words = " ".join(map(elisp_string, launch.argv))
        body = _ALL if launch.wrapped is None else _ONE
        return _TEMPLATE % {
            "begin": begin,
            "end": end,
            "function": f"acp-conductor-wrap-{elisp_symbol(name)}",
            "body": body % {"words": words, "agent": elisp_symbol(name)},
        }


def elisp_string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def elisp_symbol(name: str) -> str:
    """A name as a symbol in Lisp; special characters are escaped."""
    return re.sub(r"([^\w\-+*/<>=!?$%&.:])", r"\\\1", name)


def _markers(name: str) -> tuple[str, str]:
    shown = " ".join(name.split())
    return f";; >>> acp-conductor: {shown} >>>", f";; <<< acp-conductor: {shown} <<<"


def _pattern(name: str) -> re.Pattern[str]:
    begin, end = map(re.escape, _markers(name))
    return re.compile(rf"^{begin}.*?^{end}(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)


_ALL = """\
  (let ((wrap '(%(words)s)))
    (plist-put (plist-put (copy-sequence arguments) :command (car wrap))
               :command-params (append (cdr wrap)
                                       (list (plist-get arguments :command))
                                       (plist-get arguments :command-params)))))
"""
_ONE = """\
  (if (eq '%(agent)s
          (map-elt (agent-shell-get-config (plist-get arguments :context-buffer)) :identifier))
      (let ((wrap '(%(words)s)))
        (plist-put (plist-put (copy-sequence arguments) :command (car wrap))
                   :command-params (append (cdr wrap)
                                           (list (plist-get arguments :command))
                                           (plist-get arguments :command-params))))
    arguments))
"""
_TEMPLATE = """\
%(begin)s Written by `acp-conductor install agent-shell`.
(defun %(function)s (arguments)
  "Put the chain before the agent of `acp-make-client'."
%(body)s(with-eval-after-load 'acp
  (advice-add 'acp-make-client :filter-args #'%(function)s))
%(end)s
"""
