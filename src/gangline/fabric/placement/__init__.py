"""Placement: which servers a gang gets, which of them gets which rank, and what their order costs. Pure."""
