"""What requests and workers of the service share: accounts, limits, telemetry."""
