"""Mirrors of runs in trackers (MLflow, Weights & Biases, TensorBoard), written by a child process of the driver."""
