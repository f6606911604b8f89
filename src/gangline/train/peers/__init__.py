"""How the keepers of a gang's nodes agree: on generations, on why one ended, on when to stop.

Node 0's keeper leads. `channel` carries messages that only holders of the gang's key can write, `door` lets followers
in, `reports` says how a generation ended on a node and joins those of all nodes. A keeper sees the others as its
`Company`, which is one of `Alone`, `Leader` and `Follower`. Standard library alone.
"""
