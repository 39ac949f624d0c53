"""The subject of a tool call, as rules read it.

`call` has its kinds, tool and subject; it puts together what `commands` and `paths` find in the
`texts` of the call.
"""
