"""Gangs of a run: from a plan to a PodSet, its launcher, its attempts and its end."""
