"""State of a gang as its root and its pods show it. Reads objects; changes nothing."""
