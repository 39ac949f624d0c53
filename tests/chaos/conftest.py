"""The chaos suite runs on what the tests of processes run on."""

from processes import conftest as processes

orphans_come_to_us = processes.orphans_come_to_us
nothing_is_left = processes.nothing_is_left
start = processes.start
run_chain = processes.run_chain
