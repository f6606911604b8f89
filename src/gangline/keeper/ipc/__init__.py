"""Interface between keeper and ranks: environment variables, request files, heartbeats and signals.

`gangline.train` may import this package and nothing else of `gangline.keeper`. Standard library only."""
