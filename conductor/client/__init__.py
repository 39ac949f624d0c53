"""An ACP client on the conductor's own core, and embedding: a chain in this process."""
