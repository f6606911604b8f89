"""`gangline init`: a line.toml for a repository that has none, from scripts that are parsed and never run."""
