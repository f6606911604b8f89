"""Preparation of a model for training: wrapping as the plan says, and its picture for the report."""
