"""The local stack: servers of this machine, started on loopback for one model repository, and stopped again.

    lifecycle.bring_up(home, environ=...) -> list[ServerStatus]   starts what is not running; twice is harmless
    lifecycle.take_down(home) -> list[ServerStatus]               stops exactly what it started

Everything is below `.gangline/up` of the repository: ports, credentials (mode 0600), data, logs, and the site.toml that
names them all.
"""
