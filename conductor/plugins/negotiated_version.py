"""The protocol version of a plugin: known once its handler of `initialize` has returned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from conductor.errors import StartError
from conductor.jsonrpc.messages import exception_to_error
from conductor.log import Logger
from conductor.plugins.lane import LaneResponse
from conductor.proxy.base import Plugin, Proxy
from conductor.proxy.chain_info import chain_info
from conductor.proxy.conversion import decode_params
from conductor.proxy.handlers import Handler
from conductor.proxy.version_fit import version_fit

__all__ = ["fit_version", "record_initialize"]


def record_initialize(plugin: Plugin, params: bytes | None, result: bytes | None) -> None:
    """Keep members of `initialize`, for `Plugin.protocol_version` and others."""
    info = chain_info(plugin)
    with suppress(ValueError):  # the peer answers it
        info.asked(decode_params(params, dict))
        info.answered(decode_params(result, dict))


def fit_version(
    name: str,
    proxy: Proxy,
    answer: LaneResponse | None,
    use_handlers: Callable[[Sequence[Handler]], None],
    log: Logger,
) -> tuple[bytes | None, bytes | None] | None:
    """Leave out handlers for another version of the protocol than the negotiated one.

    `answer` is the response to the forwarded `initialize`. Returns raw result and error for the
    client if they are not those of the handler: an error of a required proxy, and the unchanged
    response if the proxy is bypassed.
    """
    cls, version = type(proxy), proxy.protocol_version
    fit = version_fit(cls, version)
    if fit.handlers is proxy._acp_handlers:
        return None
    if proxy._acp_runtime.required and not fit.is_complete:
        return None, exception_to_error(StartError(name, fit.problem(cls, version)))
    if fit.is_bypassed:
        log.warning(
            "proxy is bypassed: it is not for this version of the protocol",
            plugin=cls.__name__,
            versions=sorted(cls.versions or ()),
            protocol_version=version,
        )
    for handler in fit.left_out:
        log.warning(
            "handler is left out: its type is of another version of the protocol",
            plugin=cls.__name__,
            handler=handler.location,
            method=handler.method,
            handler_version=handler.version,
            protocol_version=version,
        )
    use_handlers(fit.handlers)
    return (answer.result, answer.error) if fit.is_bypassed and answer is not None else None
