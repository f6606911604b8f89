"""The git runner, and the repositories, clones and mirrors that are read with it."""
