"""Life of a run: creation, lease, driver, cancellation, superseding, sweeping, watching."""
