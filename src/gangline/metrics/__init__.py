"""The metric catalogue and what exports it: one declaration a series, closed labels, a cap, nothing that is not finite.

    exporter.RankExporter(run, rank, port, steps=None, host="127.0.0.1")   `.observe(event)`, `.problem`, `.close()`
    exporter.DriverExporter(port, host="127.0.0.1")                        `.show(record)`, `.forget(run)`, `.close()`
    openmetrics.render_openmetrics(records) -> str                         finals of records, for `metrics export`
    catalogue.check_catalogue() -> tuple[str, ...]                         what is wrong with it; empty: nothing

`catalogue` and `book` need the standard library alone, the exporters `prometheus-client` where it is installed.
"""
