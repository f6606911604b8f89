"""A store in a folder, and durable and safe handling of files."""
