"""The series every exporter, rule and board knows, declared once."""
