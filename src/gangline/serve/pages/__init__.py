"""The pages of the service: records and rows in, HTML out. Pure: no request, no store, no clock is known here.

Every page works without script. `live.js` makes two things move: a page whose `main` names a `data-events` address
follows it as server-sent events, and one that names `data-poll`, or is refused its events, asks for itself again
after so many seconds.
Of the events it takes

    record     the record changed: the page is asked for again, and its parts that differ take the place of the old
    progress   JSON with any of stage, step, steps, loss, tokens_per_second, eta_seconds, sentence: shown at once
    end        the run has ended: as `record`, and nothing more is awaited

A part is an element with `data-part`; what a reader has opened, ticked or typed in it stays.
"""

from gangline.serve.pages.comparison import render_compare
from gangline.serve.pages.layout import STATIC
from gangline.serve.pages.login import render_login, render_problem
from gangline.serve.pages.run import render_run
from gangline.serve.pages.runs import render_runs

__all__ = ["STATIC", "render_compare", "render_login", "render_problem", "render_run", "render_runs"]
