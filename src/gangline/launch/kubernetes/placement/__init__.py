"""Placement of gangs: servers and their free resources, the ledger, the placer, and Kueue's admission."""
