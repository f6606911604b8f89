"""The command line: flags, tables, live view. It exits with the codes of `errors`; the logic is in lower packages."""
