"""A port whose component keeps what it gets."""

from __future__ import annotations

from conductor.routing.stage import StagedPort

__all__ = ["SeenPort", "traced_port"]


class SeenPort(StagedPort):
    """Keeps params, batches and results."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def deliver_request(self, call, method, params):
        self.seen.append(params)

    def deliver_notification(self, method, params):
        self.seen.append(params)

    def deliver_batch(self, notifications):
        self.seen.append(notifications)

    def deliver_response(self, call, result, error):
        self.seen.append(result)

    def deliver_cancel(self, call):
        pass


def traced_port(recorder, component, side):
    """A port of a component whose messages are recorded."""
    port = SeenPort()
    recorder.trace(port, component, side)
    return port
