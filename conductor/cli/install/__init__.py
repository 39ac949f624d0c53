"""`acp-conductor install EDITOR` and `uninstall`: chains in the configuration of editors.

    editors (data) ──▶ command ─Launch─▶ installation ─text─▶ json_settings, code_blocks

The formats take text and return text. `jsonc` changes JSON with comments by position.
"""
