"""A plugin that hangs does not keep a program from its exit."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from conductor.chain.shutdown import abandoned_plugins


class Left(BaseException):
    """The process would end here."""


def leave():
    raise Left


async def test_the_process_is_left_if_a_plugin_still_runs():
    with pytest.RaisesGroup(Left, flatten_subgroups=True, allow_unwrapped=True):
        async with abandoned_plugins(leave) as nursery:
            nursery.start_soon(trio.sleep_forever)


async def test_nothing_is_left_early_if_all_plugins_have_ended():
    async with abandoned_plugins(leave) as nursery:
        nursery.start_soon(trio.lowlevel.checkpoint)
        await trio.testing.wait_all_tasks_blocked()
