"""Comparison of two runs: judgement, curves, changes; as HTML, markdown and text."""
