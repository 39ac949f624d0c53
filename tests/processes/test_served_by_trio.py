"""Some of these tests once more, where trio serves the descriptors: as on other systems.

`tests/transport/test_epoll_descriptors.py` compares the two ways. All other tests pass, too, with
`ACP_CONDUCTOR_EPOLL=off` in the environment.
"""

import os

import pytest
from processes.test_client_leaves import (  # noqa: F401
    test_a_client_that_closes_its_stdout_is_treated_as_disconnected,
    test_a_client_that_is_killed_in_the_middle_of_a_flood_leaves_nothing,
    test_a_long_stream_is_delivered_to_its_end,
    test_everything_that_was_asked_before_the_end_is_answered,
)
from processes.test_floods import (  # noqa: F401
    test_a_client_that_does_not_read_slows_the_agent_down,
    test_an_agent_that_does_not_read_slows_the_client_down,
    test_every_update_of_a_flood_arrives_in_order,
)
from processes.test_kinds_of_stdio import (  # noqa: F401
    test_a_socket_that_the_client_closes,
    test_a_terminal,
    test_a_terminal_that_hangs_up,
    test_plain_files,
)
from processes.test_nested_processes import (  # noqa: F401
    test_a_cancellation_passes_three_levels,
)
from support.peers.process import agent


@pytest.fixture(autouse=True)
def served_by_trio(monkeypatch):
    monkeypatch.setenv("ACP_CONDUCTOR_EPOLL", "off")


@pytest.mark.parametrize(("setting", "epolls"), [("off", 1), ("on", 2)])
def test_the_setting_selects_trio_or_the_epoll_fast_path(start_agent, monkeypatch, setting, epolls):
    monkeypatch.setenv("ACP_CONDUCTOR_EPOLL", setting)
    editor = start_agent(agent())
    editor.initialize()

    descriptors = f"/proc/{editor.pid}/fd"
    kinds = [os.readlink(f"{descriptors}/{name}") for name in os.listdir(descriptors)]

    assert kinds.count("anon_inode:[eventpoll]") == epolls
    assert editor.leave() == 0
