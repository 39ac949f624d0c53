"""Chain files besides the one on the command line: the project's, and the user's own.

    places ─▶ trust_store ─▶ project_file ─▶ merge ─▶ when ─▶ a plan: the chain of one session

`chooser` is asked for each new session; if there are such files, it has `planner` go this way.
`places` finds the files, `project_file` reads one that this user trusts (`trust_store`), `merge`
puts the proxies of all files into one chain, `when` leaves out components with a condition that
does not hold. `reloadable_chain` reads changed files again; `own_file` refuses files that other
users can write. `layers` tells commands which files apply. Without such files, only `places`,
`reloadable_chain` and `chooser` are imported.

Imports only `conductor.chainfile`, `errors` and `log`.
"""
