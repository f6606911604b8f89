"""Warm ranks, and what ranks of a small model take."""

from tests.train.conftest import warm, weight

__all__ = ["warm", "weight"]
