"""The record of a run: storage, states, size, listing, and the context through which stages change it."""
