"""Object stores of these tests outlive processes, not a power cut: nothing waits for a disk."""

import os

import pytest


@pytest.fixture(autouse=True)
def _no_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)
