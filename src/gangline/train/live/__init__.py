"""Live replicas: when a rank of a gang with replicas dies, the others stay, and the new rank recovers from them.

The keeper starts the lost rank alone and tells the living ranks where to meet it. They drop the process groups that
died with it, rendezvous again, and the rank with the newest state sends weights, optimizer and position to the others.
Nothing is read from the store, no step is lost.
"""
