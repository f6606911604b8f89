"""The rank runtime. The names a model repository uses come from here; torch is imported on first use."""
