"""The metric catalogue and what exports it: one declaration a series, closed labels, a cap, nothing that is not finite.

    exporter.RankExporter(run, rank, port, *, world_size=1, steps=None)    `.observe(event)`, `.problem`, `.close()`
    exporter.DriverExporter(port)      `.show(record)`, `.expect(run, seconds)`, `.joined(run, ranks)`, `.close()`
    openmetrics.render_openmetrics(records, moments=()) -> str             ends of runs, and ranks while they trained
    check.check_catalogue(), promql.check_expressions(found)               what is wrong with it and with rules

`catalogue` and `book` need the standard library alone, the exporters `prometheus-client` where it is installed.
"""
