"""`acp-conductor try`: a proxy before the test agent, and what it does with each message."""
