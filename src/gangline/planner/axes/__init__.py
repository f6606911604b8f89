"""Arithmetic of the mesh axes that cut a model: tensor, expert and pipeline parallelism. Pure."""
