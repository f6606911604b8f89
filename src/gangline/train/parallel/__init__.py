"""How a plan's axes change a model: a module an axis or an option, put together in `apply` and, by block, in `blocks`.

What the loop sees of the outcome is `model.ParallelModel`; which rank sits where says `train.mesh`.
"""
