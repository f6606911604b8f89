"""The writes of a gang's life: submit, cancel, final state, sweep."""
