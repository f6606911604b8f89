"""Chooses a plan from numbers, and says why every other plan lost. Pure."""
