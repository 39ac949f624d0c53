"""Modules that several ready-made proxies use. None of them is a proxy or imports one.

`tool_calls` says what a tool call is about, `paths` what a path means; `regex` matches the patterns
of chain files in linear time; `session_files` does on this machine what an agent asks of its
client; `first_prompt` puts a text before a prompt, and takes its echo out; `transcript` tells an
agent of a session that it has not seen.
"""
