"""Reports of one run: HTML, markdown, JUnit, terminal."""
