"""Accept the next connection of a listener."""

from __future__ import annotations

import errno
from typing import Final

import trio

from conductor.log import get_logger

__all__ = ["accept"]

_OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
_RETRY_SECONDS: Final = 0.1

log: Final = get_logger(component="network")


async def accept(listener: trio.SocketListener) -> trio.SocketStream:
    """Accept the next connection; retry while descriptors or memory are exhausted."""
    while True:
        try:
            return await listener.accept()
        except OSError as exc:
            if exc.errno not in _OUT_OF_RESOURCES:
                raise
            log.warning("accept failed", error=exc.strerror)
            await trio.sleep(_RETRY_SECONDS)
