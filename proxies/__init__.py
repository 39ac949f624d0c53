"""Ready-made proxies: each module, or package with the proxy in `proxy.py`, has the name of `use:`.

`shared` is the exception: what several of them need. They are written on the public API
(`conductor.proxy`, `conductor.error_codes`) and import nothing of `conductor` that docs/api.md
does not list. The entry-point group `conductor.components` gives each its name in chain files
(`use: budget`). docs/proxies.md lists them.
"""
