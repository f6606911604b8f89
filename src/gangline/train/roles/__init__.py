"""Roles of a gang: train, evaluate, prove. One module a role."""
