"""Live replicas: when a rank dies, the other replicas keep running, and its replacement recovers from them.

The keeper starts the lost rank alone and names a new rendezvous to the living ranks. They drop the process groups of
the old generation, join the new one, and the rank with the newest state sends weights, optimizer and position to the
others. Nothing is read from the store, and no step is lost.
"""
