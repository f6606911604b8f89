"""Programs with their own loop: `Session` for PyTorch, `Program` for any framework."""
