"""Logs and status files of a node: what the keeper writes, and what it reads of its ranks."""
