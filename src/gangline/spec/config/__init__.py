"""Configuration files that people write, `line.toml` and `site.toml`: tables, rules and reading."""
