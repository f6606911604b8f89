"""Shapes of a gang: devices, world size, strategy and mesh degrees. Pure."""
