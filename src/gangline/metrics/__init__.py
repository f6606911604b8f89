"""The metric catalogue and what exports it: one declaration a series, closed labels, a cap, nothing that is not finite.

    exporter.RankExporter(run, rank, port, *, world_size=1, steps=None)    `.observe(event)`, `.problem`, `.close()`
    exporter.DriverExporter(port)      `.show(record)`, `.expect(run, seconds)`, `.joined(run, ranks)`, `.forget(run)`
    openmetrics.render_openmetrics(records) -> str                         finals of records, for `metrics export`
    catalogue.check_catalogue() -> tuple[str, ...]                         what is wrong with it; empty: nothing

`catalogue` and `book` need the standard library alone, the exporters `prometheus-client` where it is installed.
"""
