"""`acp-conductor trace`: commands that look at trace files. One module per subcommand."""
