"""The fixtures of the process tests, for the chaos suite."""

from processes import conftest as processes

orphans_come_to_us = processes.orphans_come_to_us
nothing_is_left = processes.nothing_is_left
imported = processes.imported
start = processes.start
run_chain = processes.run_chain
