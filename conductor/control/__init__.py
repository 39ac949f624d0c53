"""Control socket of each running conductor, for `ps` and `trace` of the same user.

The Unix socket is in a private runtime directory (`directory`). A thread serves it (`server`), so
that it responds while a plugin blocks the event loop. It is opened shortly after the start
(`process`), which is therefore not slowed down. `running_chains` lists the chains of this process;
`client` sends requests to another conductor, and removes what killed ones have left.
"""
