"""The board of the machines: who holds them, who waits and for what, and what of it was useful."""

from grafana_foundation_sdk.builders import dashboard
from monitoring.grafana.boards import frame
from monitoring.grafana.boards import panels as p
from monitoring.grafana.boards.commit import MARKS
from monitoring.grafana.boards.panels import GREEN, ORANGE, RED, YELLOW, Ask
from monitoring.grafana.boards.promql import (
    PROJECT,
    equal,
    grown,
    last,
    now,
    of_open_runs,
    of_project,
    rank_pace,
    rate_sum,
    series,
    told,
    with_words,
)

_USEFUL = ((None, RED), (0.5, ORANGE), (0.75, YELLOW), (0.85, GREEN))
_SLOW = ((None, GREEN), (1.1, YELLOW), (1.25, ORANGE), (1.5, RED))
_NONE_IS_GOOD = ((None, GREEN), (1, ORANGE))
_SILENT = "10m"
"""A gang that holds devices and has not finished a step for so long does not say what it does."""


def fleet_board() -> dashboard.Dashboard:
    return frame.board(
        frame.FLEET,
        "gangline / Fleet",
        "Devices held, idle and silent; who waits; slow ranks; how much of what is paid for is useful.",
        variables=[frame.project(every=True)],
        marks=MARKS.format(matcher=PROJECT),
        rows=(
            ("Now", _now()),
            ("Who holds, who waits", _gangs()),
            ("Useful share", _useful()),
            ("Servers of models", _servers()),
            ("GPUs of the cluster, where their exporter is scraped", _devices()),
        ),
        span="6h",
    )


def _training() -> str:
    return f"({now('run_stage', equal('stage', 'train'), equal('state', 'running'))} == 1)"


def _held() -> str:
    """Ranks that gangs in training hold, a row a run."""
    return of_project(f"{now('gang_ranks', equal('state', 'joined'))} and on (run) {_training()}")


def _silent() -> str:
    moved = f"max by (run) (changes({series('train_step')}[{_SILENT}])) > 0"
    return f"({_held()}) unless on (run) ({moved})"


def _now() -> list[object]:
    waiting = of_project(f"{now('run_waiting')} == 1")
    return [
        p.value("Ranks held", "By gangs in training.", Ask(f"sum({_held()})"), decimals=0, empty="0"),
        p.value(
            "Held but silent", f"Ranks whose gang finished no step for {_SILENT}: `gangline logs RUN --failed`, then"
            " `gangline cancel RUN` gives them back.",
            Ask(f"sum({_silent()})"), steps=_NONE_IS_GOOD, decimals=0, empty="0",
        ),
        p.value(
            "Gangs waiting", "The page of a run says who holds what it waits for, and what would start now.",
            Ask(f"count({waiting})"), steps=((None, GREEN), (1, YELLOW), (5, ORANGE)), decimals=0, empty="0",
        ),
        p.value(
            "Useful share", "Compute over all that gangs held, of the runs in the shown time.",
            Ask(_share("compute")), unit="percentunit", steps=_USEFUL, decimals=0,
        ),
        p.value(
            "GPU hours", "Held by runs that ended in the shown time.",
            Ask(f"{grown('gpu_seconds_total', PROJECT)} / 3600"), decimals=1,
        ),
        p.value(
            "Money", "What runs that ended in the shown time cost.",
            Ask(grown("cost_total", PROJECT, by="currency"), "{{currency}}"), decimals=2,
        ),
    ]  # fmt: skip


def _gangs() -> list[object]:
    page = {"Run": ("Page of the run: why it waits", frame.RUN_PAGE + "${__value.raw}")}
    running = now("run_stage", equal("state", "running"), by="run, stage") + " == 1"
    open_runs = with_words(of_open_runs(running), "project", "branch")
    return [
        p.curves(
            "Ranks held by project", "What gangs in training hold.",
            Ask(f"sum by (project) ({with_words(_held(), 'project')})", "{{project}}"), stacked=True, least=0, width=8,
        ),
        p.curves(
            "Gangs waiting by project", "Queued for devices. Long: see the quota, or take a smaller plan with --now.",
            Ask(f"sum by (project) ({with_words(now('run_waiting'), 'project')})", "{{project}}"),
            stacked=True, least=0, width=8,
        ),
        p.rows(
            "What runs now", "Stage and ranks of every open run. Click one for its page, which says why it waits.",
            Ask(open_runs), Ask(of_open_runs(of_project(now("run_waiting")))),
            columns={"run": "Run", "project": "Project", "branch": "Branch", "stage": "Stage", "Value #B": "Waits"},
            links=page, width=8,
        ),
        p.bars(
            "Slowest ranks", "Work in a step over the median of their own gang. The same server in several runs is"
            " a bad server: cordon it.",
            Ask(f"topk(12, {of_project(rank_pace())})", "rank {{rank}} of {{run}}"),
            unit="percentunit", steps=_SLOW, width=16,
        ),
        p.bars(
            "Restarts", "Gangs that started again in the shown time.",
            Ask(f"sort_desc({of_project(last('gang_restarts_total'))} > 0)", "{{run}}"), steps=((None, ORANGE),),
        ),
    ]  # fmt: skip


def _useful() -> list[object]:
    cause = with_words(last("ledger_seconds_total", by="run, cause"), "project")
    return [
        p.bars(
            "Where held time went", "Rank-seconds by cause, runs in the shown time. The longest but compute is where"
            " to save first.",
            Ask(f"sort_desc(sum by (cause) ({cause}) > 0)", "{{cause}}"), unit="s", width=12, height=9,
        ),
        p.bars(
            "Useful share by project", "Compute over all that was held.",
            Ask(f"sort_desc(sum by (project) ({_of_cause('compute')}) / sum by (project) ({cause}))", "{{project}}"),
            unit="percentunit", steps=_USEFUL, most=1, width=12, height=9,
        ),
    ]  # fmt: skip


def _servers() -> list[object]:
    """Servers belong to no run, so all of them are shown, whatever project is chosen."""
    return [
        p.rows(
            "What answers", "Version and servers of every model. Two versions of one model: a rollout goes on.",
            Ask(f"count_values by (model) ('version', {series('infer_version')})"),
            columns={"model": "Model", "version": "Version", "Value": "Servers"}, width=8,
        ),
        p.curves(
            "Requests that wait", "For a forward pass, by model. Long: more replicas, or a larger infer.batch.",
            Ask(f"sum by (model) ({series('infer_queue')})", "{{model}}"), least=0, width=8,
        ),
        p.curves(
            "Requests refused", "With 429, in a second: the queue was full. Any: more replicas, or a longer queue.",
            Ask(rate_sum("infer_refused_total", by="model"), "{{model}}"), unit="reqps", least=0, width=8,
        ),
    ]  # fmt: skip


def _devices() -> list[object]:
    busy = "run_gpu:gangline_gpu_busy:ratio"
    owner = told("project")
    idle = f"count by (run) (max_over_time({busy}[{_SILENT}]) < 0.05)"
    return [
        p.curves(
            "GPUs", "Those nobody holds cost money, too; those held that do not compute stand beside.",
            Ask('sum(kube_node_status_allocatable{resource="nvidia_com_gpu"})', "there"),
            Ask(f"count({busy})", "held by gangs"), Ask(f"count({busy} > 0.05)", "computing"), least=0, width=8,
        ),
        p.curves(
            "Held, but not computing", f"GPUs below 5 % for {_SILENT}; the page of their run says why.",
            Ask(f"{idle} * on (run) group_left (project) {owner}", "{{project}} {{run}}"), least=0, width=8,
        ),
        p.bars(
            "Load by server", "Mean of the GPUs that gangs hold on a server.",
            Ask(f"sort_desc(avg by (Hostname) ({busy}))", "{{Hostname}}"), unit="percentunit", most=1,
        ),
    ]  # fmt: skip


def _of_cause(cause: str) -> str:
    return with_words(last("ledger_seconds_total", equal("cause", cause)), "project")


def _share(cause: str) -> str:
    whole = f"sum({of_project('sum by (run) (' + last('ledger_seconds_total', by='run, cause') + ')')})"
    return f"sum({of_project(last('ledger_seconds_total', equal('cause', cause)))}) / {whole}"
