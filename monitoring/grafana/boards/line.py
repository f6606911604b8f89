"""The board of a line: how fast a push comes back, what stops it, what it costs."""

from grafana_foundation_sdk.builders import dashboard
from monitoring.grafana.boards import frame
from monitoring.grafana.boards import panels as p
from monitoring.grafana.boards.commit import MARKS, VERDICTS
from monitoring.grafana.boards.panels import GREEN, ORANGE, RED, YELLOW, Ask
from monitoring.grafana.boards.promql import (
    PROJECT,
    equal,
    grown,
    last,
    of_project,
    off_band,
    quantile,
    rate_sum,
    series,
    with_words,
)

_SUCCESS = ((None, RED), (0.7, ORANGE), (0.9, GREEN))
_ACK = ((None, GREEN), (0.25, ORANGE), (2.0, RED))
_NONE_IS_GOOD = ((None, GREEN), (1, ORANGE), (10, RED))
_AGE = ((None, GREEN), (300, ORANGE), (1800, RED))
_OPEN_ORDERS = 'state!~"done|dropped"'
_WEEK = "7d"


def line_board() -> dashboard.Dashboard:
    return frame.board(
        frame.LINE,
        "gangline / Line",
        "All runs of a project: queue, time to a result, what fails, gates, the service and its store, money.",
        variables=[frame.project(every=True)],
        marks=MARKS.format(matcher=PROJECT),
        rows=(
            ("Now", _now()),
            ("Runs", [_newest()]),
            ("Results", _results()),
            ("Queue, webhooks, forge, store", _service()),
        ),
        span="7d",
    )


def _now() -> list[object]:
    ended = grown("runs_total", PROJECT, like_verdict("passed|refused|failed"))
    good = grown("runs_total", PROJECT, like_verdict("passed|refused"))
    return [
        p.value(
            "Runs under way", "Open runs of these projects.",
            Ask(f"sum(max by (project) ({series('runs_active', PROJECT)}))"), decimals=0, width=3,
        ),
        p.value(
            "Orders waiting", "Pushes that no run has taken up. Growing: more workers (serve.workers), or a stuck one.",
            Ask(f"sum(max by (state) ({series('queue_items', equal('state', 'queued'))}))"), decimals=0, width=3,
        ),
        p.value(
            "Oldest order", "Beyond half an hour something is stuck: `/api/v1/orders` says which and why.",
            Ask(f"max({series('queue_oldest_seconds')})"), unit="s", steps=_AGE, width=3,
        ),
        p.value(
            "Answered", "Runs that ended with yes or no, over all that were not cancelled or superseded.",
            Ask(f"{good} / ({ended} > 0)"), unit="percentunit", steps=_SUCCESS, decimals=0, width=3,
        ),
        p.value(
            "Typical time to a result", "Half of the runs are faster, from their birth to their end.",
            Ask(quantile(0.5, "result_duration_seconds", PROJECT, over="$__range")), unit="s", width=3,
        ),
        p.value(
            "Builds taken over", "Builds that cost nothing because nothing they read had changed.",
            Ask(_taken("build")), unit="percentunit", decimals=0, width=3,
        ),
        p.value(
            "Trainings taken over", "Trainings that an earlier run had done with the same inputs.",
            Ask(_taken("train")), unit="percentunit", decimals=0, width=3,
        ),
        p.value(
            "Money, 7 days", "By the prices of site.toml; none: it names no price.",
            Ask(grown("cost_total", PROJECT, by="currency", over=_WEEK), "{{currency}}"), decimals=2, width=3,
        ),
    ]  # fmt: skip


def _results() -> list[object]:
    verdicts = p.curves(
        "Runs by verdict", "Refused is the line at work: a gate said no. Failed is trouble: see the stages beside it.",
        Ask(grown("runs_total", PROJECT, by="verdict", over="1d"), "{{verdict}}"), stacked=True, least=0, width=8,
    )  # fmt: skip
    return [
        p.coloured(verdicts, VERDICTS),
        p.curves(
            "Time to a result", "From birth to end, over a day. The slow tenth usually queued: see the Fleet board.",
            Ask(quantile(0.5, "result_duration_seconds", PROJECT, over="1d"), "half of the runs"),
            Ask(quantile(0.9, "result_duration_seconds", PROJECT, over="1d"), "9 of 10 runs"),
            unit="s", least=0, width=8,
        ),
        p.bars(
            "Failures by stage and exit code", "10 a file is wrong · 20 no room · 30 code raised · 40 store"
            " · 50 a digest or policy refused · 60 a gate said no.",
            Ask(f"sort_desc({grown('stage_failures_total', PROJECT, by='stage, exit')} > 0)",
                "{{stage}}, exit {{exit}}"), steps=((None, ORANGE),), width=8,
        ),
        p.bars(
            "Answers of gates", "Unknown: there is no base yet; the first run that passes becomes one.",
            Ask(f"sort_desc({grown('gate_verdicts_total', PROJECT, by='gate, verdict')} > 0)", "{{gate}}: {{verdict}}"),
            width=8,
        ),
        p.bars(
            "Time of stages", "Half are faster. What was taken over is not counted.",
            Ask(f"sort_desc({quantile(0.5, 'stage_duration_seconds', PROJECT, by='stage', over='$__range')})",
                "{{stage}}"), unit="s", width=8,
        ),
        p.curves(
            "Money a week", "What ended runs cost, summed over the seven days before each point.",
            Ask(grown("cost_total", PROJECT, by="project, currency", over=_WEEK), "{{project}} {{currency}}"),
            least=0, width=8,
        ),
    ]  # fmt: skip


BOARD_OF_COMMIT = f"/d/{frame.COMMIT}?var-project=${{__data.fields.Project}}&var-commit=${{__value.raw}}"


def _newest() -> object:
    verdict = with_words(last("run_verdict", by="run, verdict"), "project", "branch", "commit")
    seconds = of_project(f"sum by (run) ({last('run_stage_seconds', by='run, stage')})")
    off = of_project(f"max by (run) ({off_band()})")
    return p.rows(
        "Newest runs", "Click a run for its page, a commit for its board. Off its band beyond 1: a metric got worse or"
        " better by more than seeds explain.",
        Ask(verdict), Ask(last("run_created_timestamp_seconds") + " * 1000"), Ask(off), Ask(seconds),
        columns={
            "Value #B": "Made", "verdict": "Verdict", "run": "Run", "project": "Project", "branch": "Branch",
            "commit": "Commit", "Value #C": "Off its band", "Value #D": "Time",
        },
        units={"Made": "dateTimeFromNow", "Time": "s", "Off its band": "none"},
        links={
            "Run": ("Page of the run", frame.RUN_PAGE + "${__value.raw}"),
            "Commit": ("Board of the commit", BOARD_OF_COMMIT),
        },
        newest="Made", width=24, height=8,
    )  # fmt: skip


def _service() -> list[object]:
    return [
        p.curves(
            "Orders by state", "Parked ones wait for devices or for an approval; quarantined ones failed five times.",
            Ask(f"max by (state) ({series('queue_items', _OPEN_ORDERS)})", "{{state}}"), stacked=True, least=0, width=8,
        ),
        p.curves(
            "Answer to a webhook", "99 of 100 are faster. Beyond 0.25 s the database is slow; 10 s is a forge's limit.",
            Ask(quantile(0.99, "webhook_ack_duration_seconds", by="forge"), "{{forge}}"),
            unit="s", steps=_ACK, least=0, width=8,
        ),
        p.curves(
            "Deliveries by outcome", "Forged: a wrong secret, or somebody tries. Failed: the forge will send it again.",
            Ask(rate_sum("webhook_requests_total", by="outcome"), "{{outcome}}"), unit="reqps", least=0, width=8,
        ),
        p.curves(
            "Calls to forges", "Statuses and comments. What is not ok is told again; a run never waits for it.",
            Ask(rate_sum("forge_requests_total", by="forge, outcome"), "{{forge}} {{outcome}}"),
            unit="reqps", least=0, width=8,
        ),
        p.curves(
            "Store: calls that failed", "`gangline store doctor` tries each operation by itself.",
            Ask(rate_sum("store_requests_total", equal("outcome", "failed"), by="operation"), "{{operation}}"),
            unit="reqps", least=0, width=8,
        ),
        p.curves(
            "Store: time of a call", "99 of 100 are faster.",
            Ask(quantile(0.99, "store_request_duration_seconds", by="operation"), "{{operation}}"),
            unit="s", least=0, width=8,
        ),
        p.value(
            "Store keeps writers apart", "No: one driver alone may run, promotion is refused.",
            Ask(f"min({series('store_conditional_writes')})"),
            mappings={"1": ("yes", GREEN), "0": ("no", RED)}, width=6,
        ),
        p.value(
            "Writes another driver won", "A few are normal where two drive; many: both believe they are alone.",
            Ask(grown("store_conflicts_total")), decimals=0, width=6,
            steps=((None, GREEN), (10, YELLOW), (100, ORANGE)),
        ),
        p.value(
            "Leases overdue", "Open runs whose driver went silent: start `gangline run` for them, or `gangline sweep`.",
            Ask(f"max({series('leases_overdue')})"), steps=_NONE_IS_GOOD, decimals=0, width=6,
        ),
        p.value(
            "Samples not exported", "Over the cap or not finite; `gangline metrics check` lists what may be exported.",
            Ask(grown("series_dropped_total", by="reason"), "{{reason}}"), steps=_NONE_IS_GOOD, decimals=0,
            width=6, empty="0",
        ),
    ]  # fmt: skip


def like_verdict(words: str) -> str:
    return f'verdict=~"{words}"'


def _taken(stage: str) -> str:
    """Share of a stage's results that were taken over; the others were run."""
    which = (PROJECT, equal("stage", stage))
    taken = f"({grown('stages_taken_total', *which)} or vector(0))"
    return f"{taken} / ({taken} + {grown('stage_duration_seconds_count', *which)} > 0)"
