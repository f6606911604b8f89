"""Parallel strategies: one module per axis or option, applied per block in `blocks`.

The loop sees the result as a `data_parallel.ParallelModel`; `train.runtime.device_mesh` says which rank has which
coordinates, and `train.model.wrap` puts everything together.
"""
