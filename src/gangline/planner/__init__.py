"""Choice of a training plan from numbers, and why every other plan lost. Pure: no torch, network or clock."""
