"""Which commit made a metric worse: halving a history by evidence that is noisy, costs money, and is partly there."""
