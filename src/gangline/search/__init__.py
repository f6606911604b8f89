"""Search for settings: trials are runs of one commit with other keys, proposed and stopped by Optuna."""
