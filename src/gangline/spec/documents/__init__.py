"""Generators of published documents: JSON schemas and key tables."""
