"""Signed checkpoints: written manifest last, verified before a tensor is read, opened under any plan."""
