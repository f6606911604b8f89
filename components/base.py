"""Image that components name; a pipeline is compiled with the image of its commit, which takes this one's place."""

PYTHON = "python:3.11-slim"
