"""Who starts a gang whole: servers and what is free on them, the ledger, the placer, Kueue."""
