"""Pipelines: a model cut into stages, each on its own rank, with micro-batches running through all of them."""
