"""Fault injectors for drills and tests: a TCP fault proxy, an S3 gateway, faults of processes; seeded and logged."""
