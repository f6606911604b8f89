"""Wrapping a model as a plan says: data parallel now, one module an axis."""
