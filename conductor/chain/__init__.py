"""Chain: the components of one client, from build to ordered stop.

- `build`: chain file specs to components, and their secrets, to be masked in logs; `launchers`: how
  each one is started or reached, and what can start before a client asks
- `chain`: `Chain`, from the first message to the `Ending`; `components.ChainSpec`: what it is made
  of, by `build.spec_of` that of a chain file
- `client_end`: the client's connection, also over several transports one after the other
- `components`: starts and connects the components, inserts, bypasses and removes them
- `session_chains`: the chains besides the first; `chooser`: which one a session gets;
  `reloadable_chain`: reads changed files
- `back_pressure`: when client, agent and proxies are not read; `shutdown`: the ordered
  end, and why it ended
- `client_turns`: which run; cancels them at the end, and answers questions of cancelled ones
- `startup_gate`: queues messages until the chain is initialized; `start_failure`: explains a
  failed start to the user
- `detached_client`: queues messages while the client is disconnected
- `bridge_insertion`: inserts the MCP bridge before the agent when a session needs it
- `login_methods`: authentication methods for the client, with `login_words` on its command line
- `second_agent`: the chain of a second agent of a plugin
- `stdio_server`, `watchdog`: serve one chain on stdin and stdout; exit even if a plugin blocks
"""
