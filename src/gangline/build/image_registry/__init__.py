"""Image registries: references, credentials, HTTP, and images of one repository by digest."""
