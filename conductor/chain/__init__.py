"""One client's chain: build it, run it, end it; startup gate, MCP bridge insertion, detached
client."""
