"""`local_files`: reads and writes files for an agent if the client does not.

An agent may ask its client for files (`fs/read_text_file`, `fs/write_text_file`) if the client
announces it; some agents have no other access. This proxy announces what the client does not have,
and serves it on this machine: in the directories of the user's session, `cwd` and
`additionalDirectories`, and nowhere else. Methods that the client has remain the client's.

For agents of version 1; version 2 has no files of the client. With a client of version 2 it stands
behind `v1_v2`.

Options:
    read   whether files can be read; default true
    write  whether files can be written; default true
    ask    whether the user is asked before each write; default false: the agent asks, or does not,
           as with any client
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import attrs
import trio

from conductor.error_codes import INVALID_PARAMS
from conductor.proxy import (
    Forward,
    Placement,
    Proxy,
    RequestError,
    Session,
    get_logger,
    on,
    on_session,
)
from proxies.shared.capabilities import announce
from proxies.shared.questions import ask_first
from proxies.shared.session_files import (
    read_text,
    resolved_inside,
    session_directories,
    write_text,
)

__all__ = ["LocalFiles"]

_NAME: Final = "local_files"

log: Final = get_logger(component=_NAME)


@attrs.define
class LocalFiles(Proxy):
    """Read and write files for an agent if the client does not."""

    versions = (1,)

    read: bool = True
    write: bool = True
    ask: bool = False
    _served: frozenset[str] = attrs.field(default=frozenset(), init=False)
    """Capabilities that the client does not have."""

    def placement(self) -> Placement:
        return Placement(effects={"serves_client"})

    @on("initialize")
    async def announce(self, request: dict[str, Any], forward: Forward) -> Any:
        allowed = {"readTextFile": self.read, "writeTextFile": self.write}
        self._served = frozenset(
            name
            for name, is_allowed in allowed.items()
            if is_allowed and announce(request, True, "fs", name)
        )
        return await forward()

    @on_session
    async def opened(self, session: Session) -> None:
        if self._served:
            directories = session_directories(session)
            log.info("files are served", session=session.id, directories=directories)

    @on("fs/read_text_file")
    async def read_file(self, params: dict[str, Any], forward: Forward) -> Any:
        if "readTextFile" not in self._served:
            return await forward()
        directories = session_directories(self.session_by_id(_text(params, "sessionId")))
        path = _text(params, "path")
        line, limit = (_number(params, name) for name in ("line", "limit"))
        text = await _run(partial(read_text, path, directories, line=line, limit=limit))
        return {"content": text}

    @on("fs/write_text_file")
    async def write_file(self, params: dict[str, Any], forward: Forward) -> Any:
        if "writeTextFile" not in self._served:
            return await forward()
        session = self.session_by_id(_text(params, "sessionId"))
        directories = session_directories(session)
        path, content = _text(params, "path"), _text(params, "content")
        if self.ask:
            await _run(partial(resolved_inside, path, directories))
            call = {
                "title": f"Write {path}",
                "kind": "edit",
                "locations": [{"path": path}],
                "content": [{"type": "diff", "path": path, "newText": content}],
            }
            await ask_first(self, _NAME, session, call, f"the user refuses to write `{path}`")
        await _run(partial(write_text, path, directories, content))
        return {}


async def _run(function: partial[Any]) -> Any:
    """Run in a thread; an error names the proxy. The lane is kept: a read sees what was written
    before."""
    try:
        return await trio.to_thread.run_sync(function)
    except RequestError as exc:
        raise RequestError(exc.code, f"{_NAME}: {exc.message}", exc.data) from None


def _text(params: dict[str, Any], name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str):
        raise RequestError(INVALID_PARAMS, f"{_NAME}: `{name}` is not a text")
    return value


def _number(params: dict[str, Any], name: str) -> int | None:
    value = params.get(name)
    if value is not None and (type(value) is not int or value < 0):
        raise RequestError(INVALID_PARAMS, f"{_NAME}: `{name}` is not a number of lines")
    return value
