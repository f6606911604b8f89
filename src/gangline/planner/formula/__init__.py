"""Plans of a transformer known by its shape alone: every candidate, its memory and its step by formula. Pure."""
