"""What a run looks like while it happens: a live screen, plain lines, or JSON lines."""
