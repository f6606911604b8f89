"""What people read about a run: HTML, markdown, JUnit, comparison. Drawn from records alone: no store, no clock."""
