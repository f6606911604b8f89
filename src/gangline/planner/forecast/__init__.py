"""Forecasts of memory, traffic, step time and money of a shape. Pure."""
