"""`python -m conductor` is `acp-conductor`."""

from conductor.cli import main

main()
