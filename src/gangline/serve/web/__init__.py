"""The service's web layer: routes, authentication, limits and connections."""
