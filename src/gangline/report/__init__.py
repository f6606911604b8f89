"""Reports of a run for people: HTML, markdown, JUnit, terminal, comparison. From records alone: no store, no clock."""
