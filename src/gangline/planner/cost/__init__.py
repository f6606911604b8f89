"""Memory, traffic, step time and money of a layout: of a traced model, and what both models share. Pure."""
