"""Model registry: numbered versions of runs that passed; signed, promoted by alias, verifiable by anyone."""
