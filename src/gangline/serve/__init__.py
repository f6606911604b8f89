"""The service: webhooks in, runs driven, an HTTP API and pages drawn from records."""
