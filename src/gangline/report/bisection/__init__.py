"""Results of a bisection as HTML, markdown and text."""
