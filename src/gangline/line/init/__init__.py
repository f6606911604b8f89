"""A line for a repository that has none: its scripts are read, never run, and what is guessed is said."""
