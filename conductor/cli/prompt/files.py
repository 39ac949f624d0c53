"""The file methods of `prompt --fs`: text files below one directory, symbolic links resolved.

This is not a sandbox (an agent can read files itself): it limits which files this client serves.
"""

from __future__ import annotations

import errno
import os
from typing import Any, Final

from conductor.error_codes import INTERNAL_ERROR, INVALID_PARAMS, RESOURCE_NOT_FOUND
from conductor.errors import RequestError
from conductor.files import open_inside

__all__ = ["ClientFiles"]

_MAX_BYTES: Final = 64 << 20


class ClientFiles:
    """Reads and writes below `root`."""

    def __init__(self, root: str) -> None:
        self._root = os.path.realpath(root)

    def read(self, params: Any) -> dict[str, Any]:
        """`fs/read_text_file`: `line` counts from 1, `limit` is a number of lines."""
        path = _path(params)
        line, limit = _count(params, "line", 1), _count(params, "limit", None)
        try:
            with os.fdopen(open_inside(path, [self._root]), "rb") as file:
                data = file.read(_MAX_BYTES + 1)
            if len(data) > _MAX_BYTES:
                raise RequestError(INVALID_PARAMS, f"{path} is larger than {_MAX_BYTES >> 20} MiB")
            text = data.decode()
        except (OSError, UnicodeDecodeError) as exc:
            raise self._error(path, exc) from exc
        if line == 1 and limit is None:
            return {"content": text}
        assert line is not None
        lines = text.splitlines(keepends=True)[max(line - 1, 0) :]
        return {"content": "".join(lines if limit is None else lines[:limit])}

    def write(self, params: Any) -> None:
        """`fs/write_text_file`: creates the file and its parent directories if they are missing."""
        path = _path(params)
        content = params.get("content")
        if not isinstance(content, str):
            raise RequestError(INVALID_PARAMS, "content must be a string")
        try:
            descriptor = open_inside(path, [self._root], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write(content)
        except (OSError, UnicodeEncodeError) as exc:
            raise self._error(path, exc) from exc

    def _error(self, path: str, exc: Exception) -> RequestError:
        match exc:
            case FileNotFoundError():
                return RequestError(RESOURCE_NOT_FOUND, "Resource not found", {"path": path})
            case OSError(errno=errno.EXDEV):
                return RequestError(INVALID_PARAMS, f"{path} is outside of {self._root}")
            case OSError():
                return RequestError(INTERNAL_ERROR, f"{path}: {exc.strerror}")
        return RequestError(INTERNAL_ERROR, f"{path} is not UTF-8 text")


def _path(params: Any) -> str:
    path = params.get("path") if isinstance(params, dict) else None
    if not isinstance(path, str) or not os.path.isabs(path) or "\0" in path:
        raise RequestError(INVALID_PARAMS, "path must be an absolute path")
    return path


def _count(params: dict[str, Any], name: str, default: int | None) -> int | None:
    value = params.get(name)
    if value is None:
        return default
    if type(value) is not int or value < 0:
        raise RequestError(INVALID_PARAMS, f"{name} must be a whole number")
    return value
