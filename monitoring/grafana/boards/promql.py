"""The few shapes of PromQL that the boards are made of. Text in, text out; names are those of `metrics.catalogue`.

What ends stops being exported, so an instant query says `last`: the last value inside the time range that is shown. And
because a rank, its driver and the service may export the same number, every query first takes the maximum of them.
"""

RANGE = "$__range"
STEP = "$__rate_interval"


def series(name: str, *matchers: str) -> str:
    """`gangline_NAME{...}`."""
    return f"gangline_{name}{{{', '.join(matchers)}}}" if matchers else f"gangline_{name}"


def equal(label: str, value: str) -> str:
    return f'{label}="{value}"'


def like(label: str, pattern: str) -> str:
    return f'{label}=~"{pattern}"'


RUN = equal("run", "$run")
PROJECT = like("project", "$project")
NOT_RANKS = 'gang="", gangline_gang=""'
"""What a driver or the service says of a run, not its ranks: the last word on numbers that both tell."""


def now(name: str, *matchers: str, by: str = "run") -> str:
    """The value at each point of a curve."""
    return f"max by ({by}) ({series(name, *matchers)})"


def last(name: str, *matchers: str, by: str = "run") -> str:
    """The last value in the shown range; one row for each value of `by`."""
    return f"max by ({by}) (last_over_time({series(name, *matchers)}[{RANGE}]))"


def rate(name: str, *matchers: str, by: str = "run") -> str:
    """A counter per second, at each point of a curve."""
    return f"max by ({by}) (rate({series(name, *matchers)}[{STEP}]))"


def rate_sum(name: str, *matchers: str, by: str) -> str:
    """As `rate`, of all counters of a group together."""
    return f"sum by ({by}) (rate({series(name, *matchers)}[{STEP}]))"


def gain(name: str, *matchers: str, over: str = RANGE) -> str:
    """What each counter gained over a time. One that is new began at zero, which `increase` alone cannot see."""
    counter = series(name, *matchers)
    return f"((last_over_time({counter}[{over}]) unless {counter} offset {over}) or increase({counter}[{over}]))"


def grown(name: str, *matchers: str, by: str = "", over: str = RANGE) -> str:
    """What counters of a group gained over a time; without `by`: all of them in one."""
    return f"sum {f'by ({by}) ' if by else ''}({gain(name, *matchers, over=over)})"


def quantile(q: float, histogram: str, *matchers: str, by: str = "", over: str = STEP) -> str:
    """A quantile of a histogram of the catalogue, over a sliding time; NaN stands nowhere."""
    group = f"le, {by}" if by else "le"
    bucket = gain(f"{histogram}_bucket", *matchers, over=over)
    return f"histogram_quantile({q:g}, sum by ({group}) ({bucket})) >= 0"


def told(*labels: str) -> str:
    """Each run of the chosen project once, with words of its `run_info`; to join by run."""
    return last("run_info", PROJECT, by=", ".join(("run", *labels)))


def with_words(expr: str, *labels: str) -> str:
    """`expr`, one row a run, with words of `run_info` as labels; runs of other projects fall away."""
    return f"({expr}) * on (run) group_left ({', '.join(labels)}) {told(*labels)}"


def of_project(expr: str) -> str:
    """`expr` where its run belongs to the chosen project."""
    return f"(({expr}) and on (run) {told()})"


def of_open_runs(expr: str) -> str:
    """`expr` where its run has no verdict yet: what a driver said last before it ended is not what runs now."""
    return f"(({expr}) unless on (run) {last('run_verdict')})"


def off_band(*matchers: str, by: str = "run, metric") -> str:
    """How far held-out metrics lie from the centre of their band, in halves of it: up to 1 is inside."""
    value, centre, half = (last(name, *matchers, by=by) for name in ("eval_value", "band_center", "band_half"))
    return f"abs({value} - {centre}) / ({half} > 0)"


def rank_pace(*matchers: str) -> str:
    """What each rank works in a step, over the median of its gang. Steps last alike for all: the wait is taken off."""
    ranked = (*matchers, like("rank", ".+"))
    step, wait = (now(f"rank_{name}", *ranked, by="run, rank") for name in ("step_seconds", "wait_ratio"))
    work = f"{step} * (1 - {wait})"
    return f"{work} / on (run) group_left () (quantile by (run) (0.5, {work}) > 0)"
