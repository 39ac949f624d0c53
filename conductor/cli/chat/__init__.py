"""`acp-conductor chat`: a conversation with the agent of a chain, on a terminal."""
