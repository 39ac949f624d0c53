"""The chaos suite runs on what the tests of failures run on."""

from failures import conftest as failures

orphans_come_to_us = failures.orphans_come_to_us
nothing_is_left = failures.nothing_is_left
start = failures.start
run_chain = failures.run_chain
