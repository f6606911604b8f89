"""The state database over SQLite and PostgreSQL: one set of statements, two engines."""
