"""Chain files besides the one on the command line: the project's, and the user's own.

    places ─▶ trust ─▶ project_file ─▶ merge ─▶ when ─▶ a plan: the chain of one session

`places` finds the files, `project_file` reads what this user trusts (`trust_store`), `merge` puts
the proxies of all files into one chain, `when` leaves out components, `chooser` does it for each
new session. Without such files, only `places` and `chooser` are imported.

Imports only `conductor.chainfile`, `errors` and `log`.
"""
