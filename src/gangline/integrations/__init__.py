"""Integrations with the training loops of `transformers`, `lightning` and `accelerate`: a module and an extra each.

They connect a library's loop to the gang: loss curve, metrics, saves, stop requests, seed and resume. A program that
runs on its own is a gang of one rank that saves nothing.
"""
