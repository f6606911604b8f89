"""gangline: every git commit becomes a trained, measured, reproducible model."""

__version__ = "0.2.0"
