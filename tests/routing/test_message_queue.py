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
