"""Plans of a transformer that is known by its shape alone: every candidate, its memory and its step by formulas. Pure."""
