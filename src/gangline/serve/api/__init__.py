"""The HTTP API under `/api/v1`, one module a subject. Who may call what is said in `serve.access` alone."""
