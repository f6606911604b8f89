"""Runs in the service: the index of records, live events, run metrics."""
