"""A store in a bucket of any S3 server, and credentials of single runs on it."""
