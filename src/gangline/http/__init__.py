"""Outgoing HTTP: address checks and connection pools that keep to them."""
