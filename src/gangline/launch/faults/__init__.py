"""Injectors for drills and tests: what breaks a run on purpose, seeded and logged."""
