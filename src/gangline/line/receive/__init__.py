"""Runs from a bare repository of this machine: what its post-receive hook is, and which refs of a push it builds."""
