"""`remember`: the settings of the last session for a new one. `chosen_settings` compares them,
`settings_file` keeps them.
"""

from proxies.remember.proxy import Remember

__all__ = ["Remember"]
