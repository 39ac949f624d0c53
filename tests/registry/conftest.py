"""A store of its own for each test, archives with a real agent, and a server on loopback."""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from conductor.chainfile import load
from conductor.registry.pins import Pin, current_platform
from conductor.registry.store import InstalledPackage, install_into_store

AGENT = f'#!/bin/sh\nexec {sys.executable} -m conductor.testing.agent "$@"\n'
"""A program that speaks ACP."""
DEAD_PROXY = {
    **dict.fromkeys(
        ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9"
    ),
    "npm_config_registry": "http://127.0.0.1:9/",
    "UV_OFFLINE": "1",
}
"""Variables with which nothing can be fetched."""


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the store; it does not exist yet."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("ACP_CONDUCTOR_REGISTRY", raising=False)
    return tmp_path / "data" / "acp-conductor" / "agents"


class Server:
    """A web server on loopback: bodies and redirects by path, and what was asked for."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.bodies: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.asked: list[str] = []

    def put(self, path: str, body: bytes) -> str:
        self.bodies[path] = body
        return self.url + path


@pytest.fixture
def server() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            served.asked.append(path)
            if path in served.redirects:
                self.send_response(302)
                self.send_header("Location", served.redirects[path])
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            body = served.bodies.get(path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        served = Server(http.server_port)
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield served
        finally:
            http.shutdown()
            thread.join()


def tar_of(files: dict[str, str | bytes], mode: int = 0o755) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, text in files.items():
            data = text.encode() if isinstance(text, str) else text
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), mode
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def zip_of(files: dict[str, str], mode: int = 0o100755) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as bundle:
        for name, text in files.items():
            member = zipfile.ZipInfo(name)
            member.external_attr = mode << 16
            bundle.writestr(member, text)
    return buffer.getvalue()


def entry(id: str = "echo", version: str = "1.0.0", **distribution: object) -> dict[str, object]:
    return {
        "id": id,
        "name": id,
        "version": version,
        "description": "",
        "distribution": distribution,
    }


def binary_entry(archive: str, version: str = "1.0.0", **more: object) -> dict[str, object]:
    target = {"archive": archive, "cmd": "./echo", **more}
    return entry(version=version, binary={current_platform(): target})


@pytest.fixture
def registry_file(tmp_path: Path) -> Callable[..., Path]:
    """Write a registry with these entries."""

    def write(*entries: dict[str, object]) -> Path:
        path = tmp_path / "registry.json"
        path.write_text(json.dumps({"version": "1.0.0", "agents": entries}))
        return path

    return write


@pytest.fixture
def chain(tmp_path: Path) -> Callable[..., Path]:
    """Write a chain file that names `echo` from `registry.json`."""

    def write(agent: str = "echo", more: str = "registry: ./registry.json\n") -> Path:
        path = tmp_path / "review.yaml"
        path.write_text(f"version: 1\nagent: {agent}\n{more}")
        return path

    return write


def agent_spec(path: Path):
    agent = load(path).agent
    assert agent is not None
    return agent


def put_into_store(pin: Pin, **record: Any) -> Path:
    """Install a pin of `echo` with a program that is not one; returns its directory."""

    def fill(directory: Path) -> InstalledPackage:
        (directory / "echo").write_text("program")
        return InstalledPackage("echo", **record)

    return install_into_store("echo", pin, fill)[0]


def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in DEAD_PROXY.items():
        monkeypatch.setenv(name, value)


def path_without_tools(tmp_path: Path) -> str:
    """A PATH without package managers."""
    directory = tmp_path / "empty"
    directory.mkdir(exist_ok=True)
    return os.fspath(directory)


def wheel(
    directory: Path, name: str, version: str, code: str, *needs: str, program: str | None = None
) -> None:
    """Write a wheel whose program, called like the package, runs this code."""
    command = program or name.replace("_", "-")
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {each}\n" for each in needs)
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"def main():\n    exec({code!r}, {{}})\n" + (code if "=" in code else ""),
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{command} = {name}:main\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(directory / f"{name}-{version}-py3-none-any.whl", "w") as bundle:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            bundle.writestr(path, text)
