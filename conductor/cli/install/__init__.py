"""`acp-conductor install EDITOR` and `uninstall`: chains in the configuration of editors.

    editors (data) ──▶ command ─Launch─▶ installation ─text─▶ json_settings, code_blocks
                                          │   └──▶ config_file (read, replace atomically)
                                          └──▶ records (what was written, backups)

The formats take text and return text. `jsonc` changes JSON with comments by position.
"""
