"""Events and log lines of a running gang, live from the cluster or from the store."""
