"""What the planner learns about a model and a machine before anything runs."""
