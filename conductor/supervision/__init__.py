"""What a chain is made of: programs, plugins, remote components; how each starts and ends."""
