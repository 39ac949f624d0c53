"""Images, audio and embedded resources reach an agent that takes only text."""

from __future__ import annotations

import base64
import fcntl
import stat
from contextlib import nullcontext
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from conductor.errors import withhold_details
from conductor.proxy import RequestError
from conductor.testing import FakeAgent
from proxies.prompt_content import PromptContent

PIXEL = b"\x89PNG\r\n pixel"
IMAGE = {
    "type": "image",
    "data": base64.b64encode(PIXEL).decode(),
    "mimeType": "image/png",
    "uri": "file:///home/me/a shot.png",
    "_meta": {"a": 1},
    "annotations": {"priority": 1},
}
AUDIO = {"type": "audio", "data": base64.b64encode(b"RIFF").decode(), "mimeType": "audio/x-none"}
TEXT = {
    "type": "resource",
    "resource": {"uri": "file:///w/a.md", "text": "Use ```sh\nls\n```", "mimeType": "text/plain"},
    "_meta": {"b": 2},
}
BLOB = {"type": "resource", "resource": {"uri": "db://row/7.bin", "blob": AUDIO["data"]}}
ALL = {"image": True, "audio": True, "embeddedContext": True}


@pytest.fixture
def proxy(tmp_path):
    """Make the proxy with its files below the test's directory."""
    return lambda **options: PromptContent(directory=tmp_path / "files", **options)


def strict_agent(capabilities=(), *, echoes=False, version=1, before=lambda block: None):
    """An agent that refuses content that it has not announced, as those of the SDKs may."""
    taken = {"text", "resource_link", *capabilities}
    if version == 1:
        announced = {"promptCapabilities": dict.fromkeys(capabilities, True)}
    else:
        announced = {"session": {"prompt": {name: {} for name in capabilities}}}
    agent = FakeAgent(capabilities=announced)

    def prompt(params):
        for block in params["prompt"]:
            name = "embeddedContext" if block["type"] == "resource" else block["type"]
            if name not in taken:
                raise RequestError(-32602, f"no {block['type']}, please")
            before(block)
            if echoes:
                chunk = {"sessionUpdate": "user_message_chunk", "content": block}
                agent.update(params["sessionId"], chunk)
        if echoes:
            whole = {"sessionUpdate": "user_message", "content": params["prompt"]}
            agent.update(params["sessionId"], {**whole, "messageId": "1"})
        return {"stopReason": "end_turn"}

    agent.handlers["session/prompt"] = prompt
    return agent


async def open_session(client, **options):
    await client.initialize(**options)
    return await client.new_session("/work")


def given(agent):
    return [each.params["prompt"] for each in agent.transcript.of("session/prompt", "request")]


def path_of(link):
    return Path(unquote(urlsplit(link["uri"]).path))


def echoed(client):
    return [each.params["update"]["content"] for each in client.transcript.of("session/update")]


@pytest.mark.parametrize("version", [1, 2])
async def test_what_the_agent_lacks_is_announced(chain, proxy, version):
    agent = strict_agent(["image"], version=version)
    async with chain(proxy(), agent) as client:
        result = await client.initialize(version=version)

    if version == 1:
        assert result["agentCapabilities"]["promptCapabilities"] == ALL
    else:
        assert result["capabilities"]["session"]["prompt"] == {name: {} for name in ALL}


async def test_a_command_stays_before_a_file_that_becomes_text(chain, proxy):
    command = {"type": "text", "text": "/review this"}
    agent = strict_agent()
    async with chain(proxy(), agent) as client:
        await client.prompt(await open_session(client), [TEXT, command])

    ((first, second),) = given(agent)
    assert (first, second["type"]) == (command, "text")


async def test_an_image_is_a_link_to_a_private_file_which_is_gone_at_the_end(
    chain, proxy, tmp_path
):
    agent = strict_agent()
    async with chain(proxy(), agent) as client:
        await client.prompt(await open_session(client), [{"type": "text", "text": "look"}, IMAGE])
        ((text, link),) = given(agent)
        file = path_of(link)
        assert file.read_bytes() == PIXEL
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700

    assert text == {"type": "text", "text": "look"}
    assert link == {
        "type": "resource_link",
        "uri": file.as_uri(),
        "name": "a-shot.png",
        "mimeType": "image/png",
        "description": "Content of file:///home/me/a shot.png",
        "size": len(PIXEL),
        "_meta": {"a": 1},
        "annotations": {"priority": 1},
    }
    assert file.name.endswith("a-shot.png")
    assert list((tmp_path / "files").iterdir()) == []


async def test_audio_and_binary_resources_are_files_with_a_name(chain, proxy):
    agent = strict_agent()
    async with chain(proxy(), agent) as client:
        await client.prompt(await open_session(client), [AUDIO, BLOB])
        ((audio, blob),) = given(agent)
        assert [path_of(each).read_bytes() for each in (audio, blob)] == [b"RIFF", b"RIFF"]

    assert (audio["name"], blob["name"]) == ("audio", "7.bin")
    assert "mimeType" not in blob


async def test_a_text_is_a_fenced_block_below_its_uri(chain, proxy):
    agent = strict_agent()
    async with chain(proxy(), agent) as client:
        await client.prompt(await open_session(client), [TEXT])

    fenced = "file:///w/a.md\n````\nUse ```sh\nls\n```\n````"
    assert given(agent) == [[{"type": "text", "text": fenced, "_meta": {"b": 2}}]]


async def test_what_the_agent_takes_passes_unchanged(chain, proxy):
    some, every = strict_agent(["image"]), strict_agent(ALL)
    async with chain(proxy(), some) as client:
        await client.prompt(await open_session(client), [IMAGE, AUDIO])
    async with chain(proxy(), every) as client:
        result = await client.initialize()
        await client.prompt(await client.new_session("/work"), [IMAGE, AUDIO, TEXT, BLOB])

    assert given(some)[0][0] == IMAGE
    assert given(some)[0][1]["type"] == "resource_link"
    assert given(every) == [[IMAGE, AUDIO, TEXT, BLOB]]
    assert result["agentCapabilities"]["promptCapabilities"] == ALL


@pytest.mark.parametrize("version", [1, 2])
async def test_what_the_agent_echoes_is_shown_as_it_was_sent(chain, proxy, version):
    blocks = [{"type": "text", "text": "look"}, IMAGE, AUDIO, TEXT, BLOB]
    agent = strict_agent(echoes=True, version=version)
    async with chain(proxy(), agent) as client:
        await client.prompt(await open_session(client, version=version), blocks)
        *chunks, whole = echoed(client)

    assert chunks == blocks
    assert whole == blocks


async def test_what_an_agent_puts_in_the_place_of_a_file_is_not_shown(chain, proxy, tmp_path):
    key = tmp_path / "key"
    key.write_text("key")

    def put(block):
        path = path_of(block)
        path.unlink()
        path.symlink_to(key)

    async with chain(proxy(), strict_agent(echoes=True, before=put)) as client:
        await client.prompt(await open_session(client), [IMAGE])

        assert echoed(client)[0]["type"] == "resource_link"


async def test_beyond_the_limit_the_oldest_files_of_the_session_are_removed(chain, proxy):
    agent = strict_agent(echoes=True)
    async with chain(proxy(max_bytes=len(PIXEL) + 4), agent) as client:
        session = await open_session(client)
        for block in (IMAGE, AUDIO, IMAGE):
            await client.prompt(session, [block])
        links = [prompt[0] for prompt in given(agent)]
        assert [path_of(each).exists() for each in links] == [False, True, True]
        large = {**IMAGE, "data": base64.b64encode(PIXEL * 9).decode()}
        with pytest.raises(RequestError, match=r"prompt_content: .* image .* larger than `max_by"):
            await client.prompt(session, [large])


async def test_the_files_of_a_closed_session_are_removed(chain, proxy):
    agent = strict_agent()
    agent.handlers["session/close"] = lambda params: {}
    async with chain(proxy(), agent) as client:
        sessions = [await open_session(client), await client.new_session("/work")]
        for each in sessions:
            await client.prompt(each, [IMAGE])
        await client.request("session/close", {"sessionId": sessions[0]})
        assert [path_of(prompt[0]).exists() for prompt in given(agent)] == [False, True]


async def test_what_a_killed_process_has_left_is_removed(chain, proxy, tmp_path):
    for name in ("killed", "running"):
        (tmp_path / "files" / name).mkdir(parents=True)
        (tmp_path / "files" / name / ".lock").touch()
    with (tmp_path / "files" / "running" / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        async with chain(proxy(), strict_agent()) as client:
            await client.prompt(await open_session(client), [IMAGE])

    assert [each.name for each in (tmp_path / "files").iterdir()] == ["running"]


async def test_nothing_is_removed_behind_a_link_that_an_agent_has_put_in_its_place(
    chain, proxy, tmp_path
):
    """An agent in a sandbox reads them, so that it may be able to write their directory."""
    files, other = tmp_path / "files", tmp_path / "work" / "project"
    other.mkdir(parents=True)
    (other / ".lock").touch()
    files.symlink_to(other.parent)
    async with chain(proxy(), strict_agent()) as client:
        session = await open_session(client)
        with pytest.raises(RequestError, match="no file can be written"):
            await client.prompt(session, [IMAGE])
        files.unlink()
        files.mkdir()
        (files / "left").symlink_to(other)
        await client.prompt(session, [IMAGE])

    assert (other / ".lock").exists()


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ({**IMAGE, "data": "no base64!"}, "image .* not base64"),
        ({"type": "image", "mimeType": "image/png"}, "image .* no content"),
        ({"type": "resource", "resource": {"uri": "a:b"}}, "resource .* no content"),
    ],
)
async def test_content_that_is_none_is_an_error_that_names_the_proxy(chain, proxy, block, problem):
    agent = strict_agent()
    async with chain(proxy(), agent) as client:
        session = await open_session(client)
        with pytest.raises(RequestError, match=f"prompt_content: .*{problem}"):
            await client.prompt(session, [block])
        await client.prompt(session, [IMAGE])

    assert len(given(agent)) == 1


@pytest.mark.parametrize("remote", [True, False])
async def test_files_that_cannot_be_written_are_an_error_with_their_place_for_local_clients(
    chain, tmp_path, remote
):
    (tmp_path / "files").write_text("")
    with withhold_details() if remote else nullcontext():
        async with chain(PromptContent(directory=tmp_path / "files"), strict_agent()) as client:
            with pytest.raises(RequestError, match=r"prompt_content: .* no file can be writ") as no:
                await client.prompt(await open_session(client), [IMAGE])

    assert (str(tmp_path) in str(no.value)) == (not remote)
