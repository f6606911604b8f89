"""Code forges: what a delivery says, what stands at a ref, statuses and one comment per pull request."""
