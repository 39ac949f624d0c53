"""`acp-conductor doctor`: what is wrong on this machine or with a chain, and what to do."""
