"""The training loop of a rank, for every strategy.

`trainer` runs a task, `step` makes one update. `engine` is what follows the last backward pass of a step; programs with
a loop of their own share it. `parallel` wraps the model.
"""
