"""A model before its training: wrapped as the plan says, and pictured for the report."""
