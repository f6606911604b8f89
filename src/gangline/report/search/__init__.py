"""Results of a search for settings as HTML, markdown and text."""
