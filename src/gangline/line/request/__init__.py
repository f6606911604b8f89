"""What a run is asked for: commit, effective line, rights and target; look-up of runs, reuse of finished stages."""
