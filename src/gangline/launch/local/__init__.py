"""Gangs on this machine: a folder each, a detached keeper for each virtual node, no daemon."""

from gangline.launch.local.launcher import LocalLauncher

__all__ = ["LocalLauncher"]
