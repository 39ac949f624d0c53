"""`web`: a page on this machine that shows what happens in the sessions. `/web` shows its address.

- use: ./web.py:Web
"""

import secrets
from collections import deque
from contextlib import asynccontextmanager, suppress
from html import escape

import attrs
import trio

from conductor.proxy import (
    Proxy,
    Session,
    on_session,
    on_session_end,
    on_text,
    on_tool_start,
    on_turn_end,
    per_session,
    slash,
)

PAGE = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="2">'


@attrs.define
class Web(Proxy):
    """Show the sessions on a page."""

    on_error = "pass"

    port: int = 0
    sessions: dict[str, Session] = attrs.field(factory=dict, init=False)
    address: str = attrs.field(default="", init=False)
    _token: str = attrs.field(factory=secrets.token_urlsafe, init=False)

    news = per_session(lambda: deque(maxlen=100))

    @asynccontextmanager
    async def lifespan(self):
        listeners = await trio.open_tcp_listeners(self.port, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}/{self._token}"
        self.start_soon(trio.serve_listeners, self.serve, listeners)
        yield

    @on_session
    async def opened(self, session):
        self.sessions[session.id] = session

    @on_session_end
    async def ended(self, session):
        self.sessions.pop(session.id, None)

    @on_text
    async def text(self, session, text):
        self.news[session.id].append(text)

    @on_tool_start
    async def tool(self, session, call):
        self.news[session.id].append(f"\n[{call.kind}: {call.title}]\n")

    @on_turn_end
    async def turn(self, session, end):
        self.news[session.id].append(f"\n[{end.stop_reason or end.error}]\n")

    @slash("web", "Show the address of the page with all sessions")
    async def show(self, session, arguments):
        return self.address

    def page(self):
        parts = [PAGE]
        for session in self.sessions.values():
            state = "works" if session.is_running else "waits for a prompt"
            parts.append(f"<h2>{escape(session.title or session.id)}</h2>")
            parts.append(f"<p>{escape(session.cwd)}, mode {escape(str(session.mode))}: {state}</p>")
            for call in session.tool_calls.values():
                parts.append(f"<p>{escape(call.title)}: {escape(call.status)}</p>")
            parts.append(f"<pre>{escape(''.join(self.news[session.id]))}</pre>")
        return "".join(parts)

    async def serve(self, stream):
        request = b""
        with suppress(trio.BrokenResourceError), trio.move_on_after(10):
            while b"\r\n\r\n" not in request and len(request) < 10_000:
                request += await stream.receive_some() or b"\r\n\r\n"
            found = request.startswith(f"GET /{self._token} ".encode())
            body = (self.page() if found else "Not found").encode()
            head = "HTTP/1.1 200 OK" if found else "HTTP/1.1 404 Not Found"
            kind = f"Content-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}"
            await stream.send_all(f"{head}\r\n{kind}\r\nConnection: close\r\n\r\n".encode() + body)
