"""`Forward`: the type of the `forward` argument of a handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # a default, so that `Forward` alone is `Forward[Any, Any]`
    from typing_extensions import TypeVar

    Message = TypeVar("Message", contravariant=True, default=Any)
    Result = TypeVar("Result", covariant=True, default=Any)
else:
    from typing import TypeVar

    Message = TypeVar("Message", contravariant=True)
    Result = TypeVar("Result", covariant=True)

__all__ = ["Forward"]


class Forward(Protocol[Message, Result]):
    """Sends the handled message on.

        @on("session/prompt")
        async def handle(
            self, request: PromptRequest, forward: Forward[PromptRequest, PromptResponse]
        ) -> PromptResponse: ...

    `await forward()` sends the message with the changes that the handler has made to it, byte for
    byte as it arrived if there are none; `await forward(other)` sends another one. For a request it
    returns the result, or raises `RequestError`; for a notification (`Forward[…, None]`) it returns
    once the notification is queued. `Forward` alone takes and returns anything.
    """

    async def __call__(self, message: Message | None = None, /) -> Result: ...
