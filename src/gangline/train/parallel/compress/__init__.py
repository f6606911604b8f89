"""Compression of gradients between replicas; one module a kind, each averages a bucket in place."""
