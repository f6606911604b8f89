"""The build stage's parts: code layer, environment key, images, registry, signed provenance."""
