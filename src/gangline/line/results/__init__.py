"""Results of a run, read from what its gangs wrote: losses, times, memory, metrics, ledger, noise bands."""
