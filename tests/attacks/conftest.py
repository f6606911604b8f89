"""Attacks are played against a workspace, as people and drivers use it."""

from tests.line.conftest import workspace

__all__ = ["workspace"]
