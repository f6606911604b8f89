"""Who listens beside a driver: a Prometheus, the project's forge. Imported where the site names one: most name none."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from gangline.line.context import Context


@contextmanager
def listening(ctx: Context) -> Iterator[None]:
    """While the block drives, series are served and the forge is told, as far as the site asks for it."""
    if ctx.site.metrics.grafana_url is not None:
        from gangline.line.board import link_board

        link_board(ctx)
    with ExitStack() as held:
        if ctx.site.metrics.driver_port is not None:
            from gangline.line.exporting import exported

            held.enter_context(exported(ctx))
        if ctx.site.forge:
            from gangline.line.forge.teller import told_to_forge

            held.enter_context(told_to_forge(ctx))
        yield
