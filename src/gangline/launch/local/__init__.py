"""Gangs on this machine: one folder per gang, one detached keeper per virtual node, no daemon."""

from gangline.launch.local.launcher import LocalLauncher

__all__ = ["LocalLauncher"]
