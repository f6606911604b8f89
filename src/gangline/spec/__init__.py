"""What is said in files: line, site, plan, podset, record. Frozen data, no behaviour beyond its own arithmetic."""
