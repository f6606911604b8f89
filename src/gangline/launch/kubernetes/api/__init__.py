"""The API server: its client, lists kept by watching, what it serves and what an account may do there."""
