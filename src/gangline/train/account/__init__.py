"""What a rank says of itself and where its seconds go: clock, waits, ledger, events. Knows no loop and no strategy."""
