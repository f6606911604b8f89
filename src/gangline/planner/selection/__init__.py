"""Selection of a plan: feasible shapes, ranking, choice and explanation. Pure."""
