"""Whole gangs, as in the tests of the runtime."""

from tests.train.conftest import make_gang, warm

__all__ = ["make_gang", "warm"]
