"""Code forges (GitHub, GitLab, Gitea) and bare repositories: webhooks, refs, statuses, one comment per pull request."""
