"""Ready-made proxies, one module each; modules with an underscore are shared helpers.

They are written on the public API (`conductor.proxy`, `conductor.log`, `conductor.errors`,
`conductor.schema`) and may import nothing else of `conductor`. The entry-point group
`conductor.components` gives each its name in chain files (`use: budget`). docs/proxies.md lists
them.
"""
