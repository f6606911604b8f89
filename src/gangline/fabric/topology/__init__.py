"""Topology: servers and the groups that they hang in, as files and labels say; switches of a Clos network. Pure."""
