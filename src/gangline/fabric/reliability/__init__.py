"""Reliability: how often gangs are interrupted, how often they save, and which ranks are slow. Pure."""
