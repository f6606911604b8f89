"""What a rank does from its first step to its last, whatever the strategy.

`trainer` runs a task, `step` one update. All that follows the last backward pass is in `engine`, which programs with a
loop of their own share. What the model is wrapped in is left to `parallel`.
"""
