"""Agreement between the keepers of a gang: on generations, on why one ended, on when to stop.

The keeper of node 0 leads. `channel` carries messages that only holders of the gang's key can write, `listener`
accepts followers, `reports` describes how a generation ended on a node and joins the reports of all nodes. A keeper
has one `Coordinator`, chosen in `factory`: `SingleNode`, `Leader` or `Follower`. Standard library only.
"""
