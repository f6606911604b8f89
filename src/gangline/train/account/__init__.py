"""Accounting of a rank: phase clock, waits, ledger, events, results. Knows no loop and no strategy."""
