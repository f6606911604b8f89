"""Drawn from a record alone: HTML, markdown, JUnit, comparisons."""
