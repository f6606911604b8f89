"""Layouts of a gang: mesh degrees, how data-parallel ranks hold a model, pipelines, and what rules strike out. Pure."""
