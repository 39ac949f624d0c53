"""The page in a real browser."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import msgspec
import pytest
from support.trace_records import TraceScript

from conductor.viewer import page as viewer_page
from conductor.viewer.app import open_viewer
from conductor.viewer.page import exported_page
from conductor.viewer.trace_source import TraceSource

pytestmark = pytest.mark.external

STATIC = Path(viewer_page.__file__).parent / "static"

SHOWN = "document.querySelectorAll('.row:not([hidden])')"
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "<svg/onload=alert(3)>",
    "javascript:alert(4)",
    "\u202egnp.exe \u2066 \u200f hidden\u0000\u001b[31m",
    "__proto__",
]


@pytest.fixture
async def shown(turn, tmp_path, page):
    """A page that shows the turn, from the server."""
    with TraceSource(turn.write(tmp_path / "t.jsonl")) as source:
        async with open_viewer(source) as url:
            await page.go(url)
            await page.wait_for(f"{SHOWN}.length === {len(turn.records) - 1}")
            yield page
            assert page.problems == []


async def selected(page) -> str:
    return await page.wait_for("document.querySelector('.row.selected .number').textContent")


async def open_row(page, n):
    await page.evaluate(
        f"[...document.querySelectorAll('.row')].find((each) => !each.hidden && "
        f"each.querySelector('.number').textContent === '{n}').click()"
    )
    await page.wait_for(f"document.querySelector('#panel-title').textContent.startsWith('#{n} ')")


def export(script, tmp_path):
    lines = [(msgspec.json.encode(each) + b"\n", each) for each in script.records]
    path = tmp_path / "page.html"
    path.write_bytes(b"".join(exported_page("t.jsonl", lines)))
    return path.as_uri()


async def test_a_lane_for_each_component_and_a_row_for_each_message(shown):
    assert await shown.texts(".head") == ["client", "notes", "agent"]
    methods = await shown.evaluate(
        f"[...{SHOWN}].map((each) => each.querySelector('.method').textContent)"
    )
    assert sorted(methods)[:2] == ["chain", "session/prompt"]
    assert await shown.evaluate("document.querySelectorAll('.span:not([hidden])').length") == 2


async def test_tokens_and_cost_are_in_the_summary(shown):
    assert "42 tokens · 0.2500 USD · context 500 of 1,000" in await shown.text("#summary")


async def test_turns_and_tool_calls_are_on_the_timeline(shown):
    titles = await shown.evaluate(
        "[...document.querySelectorAll('.bar')].map((each) => each.title)"
    )
    assert titles == [
        'turn #1 "What is new?": 2.25 s, 1 tool call, 42 tokens, end_turn',
        "tool call Read a.txt, completed, 0.5 s",
    ]
    await shown.click(".bar.tool")
    assert await selected(shown) == "3"


async def test_a_bar_stays_under_a_click_and_keeps_the_focus_while_the_page_is_drawn_anew(shown):
    await shown.evaluate("document.querySelector('.bar.turn').focus()")
    drawn = "document.querySelectorAll('.chip')[0].click()"
    await shown.evaluate(drawn)
    assert await shown.evaluate("document.activeElement.className") == "bar turn"
    await shown.click(".bar.tool", pressed=drawn)
    assert await selected(shown) == "3"


async def test_the_token_leaves_the_address_and_a_reload_works(shown, turn):
    assert await shown.evaluate("location.hash") == ""
    await shown.send("Page.reload")
    await shown.wait_for(f"{SHOWN}.length === {len(turn.records) - 1}")


async def test_a_code_in_the_link_is_exchanged(turn, tmp_path, page):
    with TraceSource(turn.write(tmp_path / "t.jsonl")) as source:
        async with open_viewer(source, code="once") as url:
            link = url.partition("#")[0] + "#code=once"
            await page.go(link)
            await page.wait_for(f"{SHOWN}.length")
            await page.go("about:blank")
            await page.go(link)
            await page.wait_for("document.querySelector('#state').textContent.includes('before')")


async def test_changed_messages_can_be_shown_alone(shown):
    await shown.evaluate("document.querySelectorAll('.chip')[8].click()")
    await shown.wait_for(
        f"[...{SHOWN}].map((each) => each.innerText.includes('±')).join() === 'true'"
    )


async def test_what_a_component_changed(shown):
    await open_row(shown, 2)
    await shown.click("#tab-changes")
    added = await shown.wait_for(
        "(() => { const all = [...document.querySelectorAll('.line.added')];"
        " return all.length && all.map((each) => each.innerText).join('') })()"
    )
    assert "Be kind." in added
    assert "What is new?" not in added


async def test_the_way_has_handlers_and_the_answer(shown):
    await open_row(shown, 1)
    await shown.press("3")
    way = await shown.wait_for(
        "document.querySelectorAll('.way').length === 2"
        " && document.querySelector('#panel-body').innerText"
    )
    assert "notes: forwarded by src/notes.py:7, took 0.1 s" in way
    assert "notes: passed on after 0.25 s, changed" in way
    assert "unchanged" in way


async def test_keys_move_through_messages_and_hops(shown):
    await shown.evaluate("document.querySelector('.list').focus()")
    await shown.press("Home")
    await shown.press("ArrowDown")
    assert await selected(shown) == "1"
    await shown.press("ArrowRight")
    assert await selected(shown) == "2"
    await shown.press("r")
    assert await selected(shown) == "8"
    await shown.press("ArrowRight")
    assert await selected(shown) == "9"
    await shown.press("[")
    assert await selected(shown) == "1"
    active = await shown.evaluate(
        "document.querySelector('.list').getAttribute('aria-activedescendant')"
    )
    assert (
        await shown.evaluate(f"document.getElementById('{active}').getAttribute('aria-selected')")
        == "true"
    )
    await shown.press("Escape")
    assert await shown.evaluate("document.querySelector('#panel').hidden")


async def test_a_search_of_payloads_leaves_the_rows_that_have_the_text(shown):
    await shown.press("/")
    await shown.type("be KIND")
    await shown.wait_for(f"{SHOWN}.length === 1")
    await shown.press("Enter")
    assert await selected(shown) == "2"
    await shown.press("/")
    await shown.press("Escape")
    await shown.wait_for(f"{SHOWN}.length > 5")


async def test_kinds_can_be_left_out(shown, turn):
    await shown.evaluate("document.querySelectorAll('.chip')[4].click()")
    await shown.wait_for(f"{SHOWN}.length === {len(turn.records) - 3}")
    assert (
        await shown.evaluate("document.querySelectorAll('.chip')[4].getAttribute('aria-pressed')")
        == "false"
    )
    await shown.evaluate("document.querySelectorAll('.chip')[5].click()")
    await shown.wait_for(f"{SHOWN}.length === {len(turn.records) - 2}")


async def test_what_is_added_appears(turn, tmp_path, page):
    path = turn.write(tmp_path / "t.jsonl")
    with TraceSource(path) as source:
        async with open_viewer(source, is_live=True) as url:
            await page.go(url)
            await page.wait_for(f"{SHOWN}.length === {len(turn.records) - 1}")
            assert await page.wait_for("document.querySelector('#state').textContent") == "live"
            turn.update("agent>notes", "more")
            with path.open("ab") as file:
                file.write(msgspec.json.encode(turn.records[-1]) + b"\n")
            await page.wait_for(f"{SHOWN}.length === {len(turn.records) - 1}")
    await page.wait_for("document.querySelector('#state').className === 'ended'")


async def test_a_request_for_which_a_component_was_inserted_has_no_open_bar(tmp_path, page):
    script = TraceScript("client", "agent")
    first = script.request("client>agent", "session/new")
    second = script.request("client>bridge", "session/new", cause=first)
    third = script.request("bridge>agent", "session/new", cause=second)
    answer = script.answer(third, {})
    script.answer(second, {}, cause=answer)
    await page.go(export(script, tmp_path))
    await page.wait_for(f"{SHOWN}.length === {len(script.records)}")
    await open_row(page, second)
    await page.press("3")

    way = await page.text(".way")
    assert "bridge was inserted for it, and gets it instead" in way
    open_bars = "document.querySelectorAll('.span.open:not([hidden])').length"
    assert await page.evaluate(open_bars) == 0
    assert page.problems == []


async def test_names_that_appear_while_the_trace_is_loaded_are_right(tmp_path, page, monkeypatch):
    loading = property(lambda self: "loading", lambda self, value: None)
    monkeypatch.setattr(TraceSource, "state", loading)  # at the end of the file, too
    script = TraceScript()
    path = script.write(tmp_path / "t.jsonl")
    with TraceSource(path) as source:
        async with open_viewer(source) as url:
            await page.go(url)
            await page.wait_for(f"{SHOWN}.length === 1")
            for number in range(3):
                script.request("client>notes", f"_example/{number}")
                with path.open("ab") as file:
                    file.write(msgspec.json.encode(script.records[-1]) + b"\n")
                await page.wait_for(f"{SHOWN}.length === {len(script.records)}")

            methods = await page.texts(".row:not([hidden]) .method")
            assert methods == ["chain", "_example/0", "_example/1", "_example/2"]


@pytest.mark.parametrize("way", ["served", "exported"])
async def test_hostile_payloads_are_shown_and_never_run(tmp_path, page, way):
    script = TraceScript()
    for text in HOSTILE:
        script.request("client>notes", text, {"sessionId": text, text: [text, {text: text}]})
        script.update("agent>notes", text)
        call = {"sessionUpdate": "tool_call", "toolCallId": text, "title": text, "status": text}
        script.notify("agent>notes", "session/update", {"sessionId": text, "update": call})
        prompt = {"sessionId": text, "prompt": [{"type": "text", "text": text}]}
        number = script.request("client>notes", "session/prompt", prompt)
        script.answer(number, {"stopReason": text, text: text})
        script.answer(number, {"code": text, "message": text}, is_error=True)
        script.stderr("agent", text)
        script.log("error", text, component=text, fields={text: text})
    with TraceSource(script.write(tmp_path / f"t.jsonl{HOSTILE[0][:4]}")) as source:
        async with open_viewer(source) as url:
            await page.go(url if way == "served" else export(script, tmp_path))
            await page.wait_for(f"{SHOWN}.length > 10")
            await page.resize(1400, 2400)
            numbers = await page.evaluate(f"[...{SHOWN}].map((each) => each.id)")
            for number in numbers:
                await page.evaluate(f"document.getElementById('{number}').click()")
                for tab in ("1", "2", "3"):
                    await page.press(tab)
            await page.press("/")
            await page.type(HOSTILE[1])
            await page.wait_for(f"{SHOWN}.length < {len(numbers)} && {SHOWN}.length")
            markup = await page.evaluate(
                "document.querySelectorAll('main img, svg, main script, [onerror]').length"
            )
            text = await page.evaluate("document.body.innerText")
            assert page.problems == []

    assert (page.dialogs, markup) == ([], 0)
    assert "\u202e" not in text
    assert HOSTILE[1] in text


async def test_an_error_that_a_process_passes_on_is_one_error(tmp_path, page):
    script = TraceScript()
    first = script.request("client>notes", "session/prompt", {"sessionId": "s", "prompt": []})
    second = script.request("notes>agent", "session/prompt", {"sessionId": "s", "prompt": []})
    failed = {"code": -32603, "message": "failed"}
    for number in (second, first):  # without links: these are inferred
        script.answer(number, failed, is_error=True)
    await page.go(export(script, tmp_path))
    await page.wait_for("document.querySelector('#summary').textContent.endsWith('1 error')")


async def test_long_words_do_not_leave_the_panel(tmp_path, page):
    word = "word" * 200
    script = TraceScript("client", word, "agent")
    params = {"sessionId": word, "prompt": [{"type": "text", "text": word}], word: word}
    script.request(f"client>{word}", "session/prompt", params)
    changed = {**params, "prompt": []}
    second = script.request(f"{word}>agent", "session/prompt", changed, cause=1)
    script.request("agent>" + word, f"_{word}", {}, cause=second)
    await page.go(export(script, tmp_path))
    await page.wait_for(f"{SHOWN}.length > 2")
    widths = "(({scrollWidth, clientWidth}) => scrollWidth - clientWidth)"
    for n in (2, 3):
        await open_row(page, n)
        for tab in ("message", "changes", "way"):
            await page.click(f"#tab-{tab}")
            await page.wait_for("document.querySelector('#panel-body').children.length")
            for part in ("#panel", "#panel-body", ".facts"):
                assert await page.evaluate(f"{widths}(document.querySelector('{part}'))") <= 0


async def test_the_exported_page_shows_what_the_served_one_does(turn, tmp_path, page):
    await page.go(export(turn, tmp_path))
    await page.wait_for(f"{SHOWN}.length === {len(turn.records) - 1}")
    await open_row(page, 2)
    await page.press("2")
    assert "Be kind." in await page.wait_for(
        "document.querySelector('.line.added')?.parentElement.innerText"
    )
    await page.press("/")
    await page.type("Be KIND.")
    await page.wait_for(f"{SHOWN}.length === 1")
    assert page.problems == []


async def test_a_page_takes_more_names_than_a_call_has_arguments(page):
    code = (STATIC / "rows.js").read_text()
    url = f"data:text/javascript;base64,{base64.b64encode(code.encode()).decode()}"
    known = "{name: '', lanes: [], usage: {}, rows: [], strings: Array(300000).fill('s')}"
    found = await page.evaluate(
        f"import('{url}').then((rows) => {{ const trace = new rows.Trace();"
        f" trace.add({known}); return trace.strings.length; }})"
    )

    assert found == 300000


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, []),
        ({"a": 1}, {"a": 2}, [("~", '  "a": 1', '  "a": 2')]),
        ({"a": [1, 2]}, {"a": [1, 2], "b": 3}, [("+", None, '  "b": 3')]),
        ({"_meta": {"acp-conductor/x": 1}, "a": 1}, {"a": 1}, []),
        ([1, 2, 3], [3], "some"),
        (None, {"a": None}, "some"),
    ],
)
async def test_the_difference_of_two_values(page, old, new, lines):
    modules = [(STATIC / f"{name}.js").read_text() for name in ("dom", "format", "json_diff")]
    code = re.sub(r"^import [^;]*;$", "", "".join(modules), flags=re.M)
    url = f"data:text/javascript;base64,{base64.b64encode(code.encode()).decode()}"
    values = f"{json.dumps(old)}, {json.dumps(new)}"
    found = await page.evaluate(
        f"import('{url}').then((test) => test.diffLines({values}))"
        ".then((all) => all.filter((each) => each.mark !== ' '))"
    )

    if lines == "some":
        assert found
    else:
        assert [(each["mark"], each.get("old"), each.get("now")) for each in found] == lines
