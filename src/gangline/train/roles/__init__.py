"""Roles of a gang: train, evaluate, prove, score. One module a role."""
