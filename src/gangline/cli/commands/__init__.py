"""One file per command, imported when that command is called; each has `command`, or `app` where it has subcommands."""
