"""Processes of the ranks of one node: start, watchdog, diagnosis of hangs, exit."""
