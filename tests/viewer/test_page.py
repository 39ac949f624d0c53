"""The files of the page, and the exported one."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import msgspec
from support.trace_records import TraceScript

from conductor.viewer import page
from conductor.viewer.page import MODULES, exported_page, script, served_files, style
from conductor.viewer.trace_index import Row

STATIC = Path(page.__file__).parent / "static"


def exported(records) -> str:
    lines = [(msgspec.json.encode(each) + b"\n", each) for each in records]
    return b"".join(exported_page("t.jsonl", lines)).decode()


def data_of(html: str, id: str) -> str:
    return re.search(rf'<script type="application/json" id="{id}">(.*?)</script>', html, re.S)[1]


def test_every_module_is_in_the_script_after_those_that_it_imports():
    seen: set[str] = set()
    for name in MODULES:
        text = (STATIC / f"{name}.js").read_text()
        assert set(re.findall(r'from "\./(\w+)\.js"', text)) <= seen, name
        seen.add(name)
    assert {f"{name}.js" for name in seen} == {each.name for each in STATIC.glob("*.js")}


def test_top_level_names_of_the_modules_are_unique():
    names = re.findall(r"^(?:async )?(?:function\*?|class|const|let) (\w+)", script(), re.M)

    assert sorted(names) == sorted(set(names))
    assert not re.search(r"^(import|export) ", script(), re.M)


def test_rows_have_the_fields_of_the_index_in_order():
    text = (STATIC / "rows.js").read_text()
    named = re.findall(r"this\.(\w+)", text.partition("] = values")[0])

    snake = [re.sub(r"[A-Z]", lambda found: "_" + found[0].lower(), name) for name in named]
    assert tuple(snake) == Row.__struct_fields__


def test_the_page_needs_nothing_from_elsewhere():
    for name, data in served_files().items():
        assert not re.search(rb"https?://|//cdn|innerHTML|outerHTML|insertAdjacent|eval\(", data), (
            name
        )


def test_the_exported_page_allows_its_own_script_and_style_only(turn):
    html = exported(turn.records)

    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)[1]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for tag, text in (("script-src", script()), ("style-src", style())):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag} 'sha256-{digest}'" in policy
    assert "</script" not in script()


def test_the_exported_page_has_every_record(turn):
    html = exported(turn.records)

    lines = data_of(html, "records").splitlines()
    assert [json.loads(each) for each in lines] == [
        json.loads(msgspec.json.encode(each)) for each in turn.records
    ]
    assert json.loads(data_of(html, "index"))["lanes"] == ["client", "notes", "agent"]


def test_a_payload_does_not_end_the_script_that_it_is_in():
    script = TraceScript()
    script.update("agent>notes", "</script><script>alert(1)</script><!-- <script>")

    html = exported(script.records)

    assert "alert(1)</script>" not in html
    assert (
        "alert(1)"
        in json.loads(data_of(html, "records").splitlines()[1])["params"]["update"]["content"][
            "text"
        ]
    )
