"""Gangline inside the loops of others: `transformers`, `lightning`, `accelerate`, a module and an extra each.

A gang's curve, metrics, saves, stops, seed and resume for programs whose loop is a library's; at a desk all of it works
as a gang of one that saves nothing.
"""
