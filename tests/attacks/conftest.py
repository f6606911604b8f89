"""Attacks are played against a desk, as people and drivers use it."""

from tests.line.conftest import desk

__all__ = ["desk"]
