"""What a cluster serves, which components run on it, and what an account may do there."""
