"""Searches that cost something begin where somebody agrees."""

import io

import pytest

from gangline.cli.budget import confirm_cost
from gangline.errors import UsageError


def test_without_a_terminal_nothing_begins_unasked(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(UsageError, match="wanted --budget or --yes without a terminal"):
        confirm_cost()
