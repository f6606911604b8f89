"""From an order to its run: what stands at its ref, what the line's triggers say, a driver of its own, how it ended."""
