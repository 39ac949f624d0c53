"""Accept the next connection of a listener.

While no descriptor or memory is free, `accept` fails whether or not a client waits. This is logged
once, and once more when it works again.
"""

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
    failed_since: float | None = None
    while True:
        stream = None
        try:
            if failed_since is None:
                return await listener.accept()
            with trio.move_on_after(_RETRY_SECONDS):  # it fails at once, or waits for a client
                stream = await listener.accept()
        except OSError as exc:
            if exc.errno not in _OUT_OF_RESOURCES:
                raise
            if failed_since is None:
                failed_since = trio.current_time()
                log.warning("accept failed", error=exc.strerror)
            await trio.sleep(_RETRY_SECONDS)
            continue
        log.warning("accept works again", seconds=round(trio.current_time() - failed_since, 1))
        failed_since = None
        if stream is not None:
            return stream
