"""`acp-conductor check`: mistakes of chain files, their plugins and programs; starts of chains."""
