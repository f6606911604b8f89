"""Generators of schemas and reference pages, run by `make schemas`; not part of the wheel."""
