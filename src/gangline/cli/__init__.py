"""The command line: flags, tables, live view. It ends with the exit code that `errors` gives; logic lives below it."""
