"""The message queue: order, size in bytes, release."""

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.routing.message_queue import MESSAGE_OVERHEAD, MessageQueue, QueuedMessage
from conductor.routing.port import UnconnectedPort


def request(method: str, params: bytes | None = None) -> QueuedMessage:
    return QueuedMessage.copy_of(InFlightRequest(method, UnconnectedPort()), method, params)


def notification(method: str, params: bytes | None = None) -> QueuedMessage:
    return QueuedMessage.copy_of(None, method, params)


def methods_released(queue: MessageQueue) -> list[str]:
    released: list[str] = []
    queue.release(lambda message: released.append(message.method))
    return released


def test_messages_are_released_in_order_and_the_size_returns_to_zero():
    queue = MessageQueue()
    queue.append(request("b", b'{"x":1}'))
    queue.append(notification("c"))
    queue.prepend([notification("a"), request("aa")])

    assert queue.size == 4 * MESSAGE_OVERHEAD + len(b'{"x":1}')
    assert methods_released(queue) == ["a", "aa", "b", "c"]
    assert (queue.size, len(queue)) == (0, 0)


def test_messages_appended_during_a_release_wait_for_the_next():
    queue = MessageQueue()
    queue.append(notification("a"))
    queue.append(notification("b"))

    queue.release(lambda message: queue.append(message) if message.method == "a" else None)

    assert queue.size == MESSAGE_OVERHEAD
    assert methods_released(queue) == ["a"]


def test_the_prompts_of_one_session_are_taken_out():
    queue = MessageQueue()
    first = request("session/prompt", b'{"sessionId":"s"}')
    for message in (
        first,
        request("session/prompt", b'{"sessionId":"t"}'),
        notification("session/cancel", b'{"sessionId":"s"}'),
    ):
        queue.append(message)

    assert queue.has_prompt("s")
    assert queue.take_prompts("s") == [first.call]
    assert not queue.has_prompt("s")
    assert methods_released(queue) == ["session/prompt", "session/cancel"]


def test_the_queue_keeps_its_own_copy_of_params():
    buffer = bytearray(b"{}")
    message = QueuedMessage.copy_of(None, "a", memoryview(buffer))
    buffer[:] = b"[]"

    assert message.params == b"{}"
