"""The stages, their order, the record, and everything that may happen to a run."""
