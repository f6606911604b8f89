"""What runs at the start of every Python program of a rank: `sitecustomize`, found by way of PYTHONPATH."""
