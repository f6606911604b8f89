"""Work of an order: the commit of its ref, what the line's triggers say, a driver of its own, how it ended."""
