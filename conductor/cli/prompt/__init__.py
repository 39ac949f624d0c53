"""`acp-conductor prompt`: one prompt through a chain, with its answer on the terminal."""
