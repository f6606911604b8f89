"""Fixtures of a model repository with a store of its own."""

from tests.line.conftest import workspace

__all__ = ["workspace"]
