"""Client of the Kubernetes API server: requests with retries and a deadline, watches, cached lists."""
