"""Probes between servers: loss, round-trip time, bandwidth, and what they say about the parts of a network.

`listener` and `client` alone open sockets. A listener runs on every server:

    python -m gangline.fabric.probe --port 4719 --secret-file /run/secrets/probe
"""
