"""Traffic: seconds of collectives, order of servers on rings, load of the uplinks that their flows take. Pure."""
