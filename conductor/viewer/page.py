"""The files of the page: as they are served, and as one HTML file with a trace in it.

The modules of `static/` become one script, so that the exported file needs no other: imports
between them are left out, and their top-level names are unique (a test holds it). Its parts of the
style sheet become one, too.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from conductor.tracing.records import Record
from conductor.viewer.trace_index import TraceIndex

__all__ = ["MEDIA_TYPES", "MODULES", "STYLES", "exported_page", "script", "served_files", "style"]

MODULES: Final = (
    *("dom", "format", "rows", "sources", "filter", "json_view", "json_diff"),
    *("diagram", "timeline", "panel", "view"),
)
"""Modules of the script: each after those that it imports."""
STYLES: Final = ("page", "head", "timeline", "diagram", "panel")
"""Parts of the style sheet, in order: later rules override earlier ones."""
MEDIA_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
}
_IMPORT: Final = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?(?:function|class|const|let)\b)", re.MULTILINE)
_encode: Final = msgspec.json.Encoder().encode


@cache
def script() -> str:
    """The script of the page."""
    texts = (_static(f"{name}.js") for name in MODULES)
    return "".join(_EXPORT.sub("", _IMPORT.sub("", text)) for text in texts)


@cache
def style() -> str:
    """The style sheet of the page."""
    return "".join(_static(f"{name}.css") for name in STYLES)


def served_files() -> Mapping[str, bytes]:
    """The files of the page by name."""
    head = '<link rel="stylesheet" href="view.css">\n<script type="module" src="view.js"></script>'
    return {
        "view.html": _static("view.html").replace("<!-- head -->", head).encode(),
        "view.css": style().encode(),
        "view.js": script().encode(),
    }


def exported_page(name: str, lines: Iterable[tuple[bytes, Record]]) -> Iterator[bytes]:
    """One HTML file with the page and these records, in parts. `name` is that of the trace."""
    css, code = style(), script()
    policy = (
        f"default-src 'none'; script-src 'sha256-{_sha256(code)}'; "
        f"style-src 'sha256-{_sha256(css)}'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{css}</style>'
    before, _, after = _static("view.html").replace("<!-- head -->", head).partition("<!-- end -->")
    index = TraceIndex()
    yield f'{before}<script type="application/json" id="records">'.encode()
    for line, record in lines:
        index.add(record)
        yield _in_html(line)
    yield b'</script>\n<script type="application/json" id="index">'
    known: dict[str, Any] = {
        "name": name,
        "lanes": index.lanes(),
        "usage": index.usage,
        "strings": index.strings,
        "links": index.links(),
    }
    rows = b",".join(index.rows)
    yield _in_html(_encode(known)[:-1] + b',"rows":[' + rows + b"]}")
    yield f'</script>\n<script type="module">{code}</script>{after}'.encode()


def _in_html(json: bytes) -> bytes:
    """JSON that does not end its script element. `<` is only within its strings."""
    return json.replace(b"<", b"\\u003c")


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _static(name: str) -> str:
    return (files("conductor.viewer") / "static" / name).read_text(encoding="utf-8")
