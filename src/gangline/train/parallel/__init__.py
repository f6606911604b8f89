"""How a plan's axes change a model: one module per axis or option, applied per block in `blocks`.

The loop sees the result as `model.ParallelModel`; `train.runtime.device_mesh` says which rank is where, and
`train.model.wrap` puts everything together.
"""
