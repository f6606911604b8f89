"""Gradients made smaller on their way between replicas; one module a kind, each averages one bucket in place."""
