"""Bisection: which commit made a metric worse, found with measurements that are noisy, costly and incomplete."""
