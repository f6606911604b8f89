"""The network as arithmetic: inventory, collectives, paths, mapping, failures. The standard library alone."""
