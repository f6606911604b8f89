"""Environments and images of a commit: code layer, recipe, builders, virtual environments, image registry."""
