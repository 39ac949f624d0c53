"""Ready-made proxies, one module each; modules with an underscore are shared helpers.

They are written on the public API (`conductor.proxy`, `conductor.proxy.tool_names`) and import
nothing of `conductor` that docs/api.md does not list. The entry-point group
`conductor.components` gives each its name in chain files (`use: budget`). docs/proxies.md lists
them.
"""
