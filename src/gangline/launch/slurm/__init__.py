"""Files by which Slurm starts a gang on servers that were chosen for it; nothing here calls Slurm."""
