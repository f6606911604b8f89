"""Live replicas: when a rank of a gang with replicas dies, the others stay, and it heals from them.

The keeper starts the lost rank alone and tells the living where to meet it; they give up the groups that died with it,
meet again, and who knows most hands weights, optimizer and place on. Nothing is read from the store, no step is lost.
"""
