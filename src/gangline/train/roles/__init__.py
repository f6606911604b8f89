"""What a gang is for: train, evaluate, prove. One module a role."""
