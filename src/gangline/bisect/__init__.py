"""Bisection: finds the commit that made a metric worse, by measurements that are noisy, costly and incomplete."""
