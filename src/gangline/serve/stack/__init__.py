"""The local stack: servers that are installed here, started on loopback for one model repository, and stopped again.

    up.bring_up(home, s3=None) -> list[Row]      starts what is not running; twice is harmless
    down.take_down(home) -> list[Row]            stops exactly what it started
    compose.render_compose(home, ports) -> str   the same servers for those who have a container engine

Everything lies below `.gangline/up` of the repository: ports, credentials (mode 0600), data, logs, the site.toml that
names them all.
"""
