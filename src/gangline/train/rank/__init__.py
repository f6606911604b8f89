"""A rank process: how it starts, joins its gang and ends."""
