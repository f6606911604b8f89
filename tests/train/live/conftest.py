"""Gangs of this machine under a real keeper; nothing of them is left afterwards."""

from tests.faults.t.conftest import stand
from tests.train.conftest import make_gang, warm

__all__ = ["make_gang", "stand", "warm"]
