"""A parameter server over the object store: workers push changes and pull weights, servers merge."""
