"""The board of one commit: is it good, is it fast, where did its time go."""

from grafana_foundation_sdk.builders import dashboard
from monitoring.grafana.boards import frame
from monitoring.grafana.boards import panels as p
from monitoring.grafana.boards.panels import GREEN, GREY, ORANGE, RED, YELLOW, Ask
from monitoring.grafana.boards.promql import (
    NOT_RANKS,
    RUN,
    equal,
    last,
    like,
    now,
    of_open_runs,
    off_band,
    rank_pace,
    rate,
    series,
)

from gangline.metrics.labels import STAGE_STATES
from gangline.spec.record import STAGES

VERDICTS = {"passed": GREEN, "refused": ORANGE, "failed": RED, "cancelled": GREY, "superseded": GREY}
_STATE_COLOURS = dict(zip(STAGE_STATES, (GREY, p.BLUE, GREEN, "semi-dark-green", GREY, RED, ORANGE), strict=True))
_ODDS = ((None, GREEN), (1.0, RED))
_FORECAST = ((None, ORANGE), (0.8, GREEN), (1.2, ORANGE), (2.0, RED))
_SLOW = ((None, GREEN), (1.1, YELLOW), (1.25, ORANGE), (1.5, RED))
_LOSS = like("metric", ".+_loss")
"""Held-out ones: `eval_loss` and its like."""


def commit_board() -> dashboard.Dashboard:
    return frame.board(
        frame.COMMIT,
        "gangline / Commit",
        "One run of one commit: verdict, loss on its band, speed, ranks, time and money.",
        variables=_variables(),
        marks=MARKS.format(matcher=RUN),
        rows=(
            ("Verdict", _verdict()),
            ("Quality", _quality()),
            ("Speed", _speed()),
            ("Ranks", _ranks()),
            ("Where the time went", _time()),
            ("Members, where the run is a federation", _members()),
            ("GPUs and hosts, where their exporters are scraped", _devices()),
        ),
        span="1h",
    )


MARKS = (
    "1000 * max by (run) (gangline_run_created_timestamp_seconds)"
    " * on (run) group_left (project, branch, commit)"
    " max by (run, project, branch, commit) (gangline_run_info{{{matcher}}})"
)
"""When each run was made, in milliseconds, with the words of its commit."""


def _variables() -> list[dashboard.QueryVariable]:
    info = "gangline_run_info"
    chosen = 'project="$project", branch=~"$branch"'
    newest_first = (
        "query_result(sort_desc(max by (run) (last_over_time(gangline_run_created_timestamp_seconds[$__range]))"
        f' and on (run) last_over_time({info}{{{chosen}, commit=~"$commit"}}[$__range])))'
    )
    return [
        frame.project(every=False),
        frame.asked(
            "branch", "Branch", f'label_values({info}{{project="$project"}}, branch)', every=True,
            says="Branches that had a run in the shown time.",
        ),
        frame.asked(
            "commit", "Commit", f"label_values({info}{{{chosen}}}, commit)", every=True,
            says="Commits that had a run in the shown time.",
        ),
        frame.asked(
            "run", "Run", newest_first, every=False, regex='/run="([^"]+)"/', says="Runs of the commit, newest first.",
        ),
    ]  # fmt: skip


def _verdict() -> list[object]:
    opens = dashboard.DashboardLink("Run page: gates, report, forge, pipeline").url(frame.RUN_PAGE + "${run}")
    verdict = p.value(
        "Verdict", "The run's page says which gate or stage decided, and links forge, Jenkins and pipeline.",
        Ask(last("run_verdict", RUN, by="verdict"), "{{verdict}}"), names=True, empty="open",
    )  # fmt: skip
    p.coloured(verdict, VERDICTS).links([opens.target_blank(True)])
    stage = p.value(
        "Stage", "What runs now; red where the line stopped. `gangline logs RUN --failed` shows what it said.",
        Ask(of_open_runs(f"{now('run_stage', RUN, equal('state', 'running'), by='run, stage')} == 1"), "{{stage}}"),
        Ask(f"{last('run_stage', RUN, equal('state', 'failed'), by='stage')} == 1", "{{stage}} failed"),
        names=True, empty="ended",
    )  # fmt: skip
    p.coloured(stage, {".* failed": RED})
    return [
        verdict,
        stage,
        p.value(
            "Time left", "Forecast of what training still needs. None: nothing trains, or no step was finished yet.",
            Ask(now("run_eta_seconds", RUN)), unit="s", width=3,
        ),
        p.value(
            "Loss", "Training loss of the last step, over all ranks.",
            Ask(f"{last('train_loss', RUN, NOT_RANKS)} or {last('train_loss', RUN)}"), decimals=4, width=3,
        ),
        p.value(
            "Furthest from its band", "In halves of the band; beyond 1 the change is more than seeds explain."
            " `gangline bisect METRIC --good COMMIT` finds the commit that did it.",
            Ask(f"topk(1, {off_band(RUN, by='metric')})", "{{metric}}"), steps=_ODDS, decimals=2, width=4,
        ),
        p.value(
            "Restarts", "Each one redoes the steps since the last checkpoint; the run's page says why.",
            Ask(last("gang_restarts_total", RUN)), steps=((None, GREEN), (1, YELLOW), (4, RED)), width=3,
        ),
        p.value(
            "Money", "By the prices of site.toml; none: it names no price.",
            Ask(last("run_cost", RUN, by="currency"), "{{currency}}"), decimals=2, width=3,
        ),
    ]  # fmt: skip


def _quality() -> list[object]:
    low = f"{now('band_center', RUN, _LOSS, by='metric')} - {now('band_half', RUN, _LOSS, by='metric')}"
    high = f"{now('band_center', RUN, _LOSS, by='metric')} + {now('band_half', RUN, _LOSS, by='metric')}"
    loss = p.curves(
        "Loss on its band", "The shaded band is where a run of the base with another seed would end."
        " A held-out loss above it is a regression, whatever the training loss does.",
        Ask(now("train_loss", RUN), "training"),
        Ask(now("eval_value", RUN, _LOSS, by="metric"), "held out: {{metric}}"),
        Ask(low, "band low"), Ask(high, "band high"), width=16, height=9,
    )  # fmt: skip
    p.banded(p.coloured(loss, {"training": p.BLUE, "held out.*": ORANGE}), low="band low", high="band high")
    judged = p.rows(
        "Held-out metrics", "What the quality gate judges. A metric without a band has no base yet, or too few seeds.",
        Ask(last("eval_value", RUN, by="metric")), Ask(last("band_center", RUN, by="metric")),
        Ask(last("band_half", RUN, by="metric")),
        columns={"metric": "Metric", "Value #A": "Value", "Value #B": "Band centre", "Value #C": "± half"},
        height=9, width=8,
    )  # fmt: skip
    return [
        loss,
        judged,
        p.curves(
            "Gradient norm", "Before clipping. A jump ahead of a loss that leaves its band points at data or rate.",
            Ask(now("train_gradient_norm", RUN), "norm"), least=0, height=7,
        ),
        p.curves(
            "Learning rate", "As the schedule of line.toml sets it.",
            Ask(now("train_learning_rate", RUN), "rate"), least=0, height=7, unit="sci",
        ),
    ]  # fmt: skip


def _speed() -> list[object]:
    step = "train_step_phase_seconds"
    phases = p.curves(
        "Where a step goes", "Median of the last 50 steps of rank 0. Much wait: look at the slowest rank below;"
        " much data: more workers or larger shards.",
        Ask(now(step, RUN, equal("statistic", "median"), by="phase"), "{{phase}}"), unit="s", stacked=True, least=0,
    )  # fmt: skip
    return [
        p.curves(
            "Throughput", "All ranks together; a dip is a restart or a checkpoint that blocked.",
            Ask(rate("train_samples_total", RUN), "samples/s"),
            Ask(f"{rate('train_tokens_total', RUN)} and on (run) {now('train_tokens_total', RUN)} > 0", "tokens/s"),
            least=0,
        ),
        phases,
        p.curves(
            "Model arithmetic", "Share of what the GPUs can do (MFU). Far below its neighbours: see where a step goes.",
            Ask(now("train_mfu_ratio", RUN), "MFU"), unit="percentunit", least=0, width=8,
        ),
        p.curves(
            "Memory of rank 0", "Peak since the ranks started; near the device's size the next change will not fit.",
            Ask(now("train_memory_peak_bytes", RUN), "peak"), unit="bytes", least=0, width=8,
        ),
        p.curves(
            "Steps", "Trained, and saved. The gap is what a failure would cost now.",
            Ask(now("train_step", RUN), "trained"), Ask(now("checkpoint_last_step", RUN), "saved"),
            Ask(now("train_steps", RUN), "wanted"), least=0, width=8,
        ),
    ]  # fmt: skip


def _ranks() -> list[object]:
    return [
        p.strip(
            "Work of each rank in a step, over their median", "Waiting for peers is taken off. A row that stays red is"
            " a slow server or a bad link; the same rank again elsewhere is a slow part of the model.",
            Ask(rank_pace(RUN), "rank {{rank}}"), unit="percentunit", steps=_SLOW, width=16,
        ),
        p.bars(
            "Waits for its peers", "Share of a step. The rank that waits least is the one the others wait for.",
            Ask(f"sort(max by (rank) (last_over_time({series('rank_wait_ratio', RUN, like('rank', '.+'))}[$__range])))",
                "rank {{rank}}"),
            unit="percentunit", most=1,
        ),
        p.curves(
            "Ranks of the gang", "Wanted by the plan, and met. They differ while a gang gathers or after a rank died.",
            Ask(now("gang_ranks", RUN, by="state"), "{{state}}"), least=0, height=7,
        ),
        p.curves(
            "Time of a save", "What blocked training, and the whole save until it is durable (90 % are shorter).",
            Ask("histogram_quantile(0.9, sum by (le, part) ("
                f"{now('checkpoint_duration_seconds_bucket', RUN, by='run, le, part')})) >= 0", "{{part}}"),
            unit="s", least=0, height=7,
        ),
    ]  # fmt: skip


def _time() -> list[object]:
    code = {str(at): (state, _STATE_COLOURS[state]) for at, state in enumerate(STAGE_STATES)}
    stages = [Ask(_state_of(stage), stage) for stage in STAGES]
    return [
        p.states(
            "Stages", "Taken: an earlier run had done it. Click a failed one's run page for its log.",
            *stages, mappings=code, width=16,
        ),
        p.bars(
            "Time of stages", "Longest first; what was taken over cost nothing here.",
            Ask(f"sort_desc({last('run_stage_seconds', RUN, by='stage')} > 0)", "{{stage}}"), unit="s", height=10,
        ),
        p.bars(
            "Held rank-seconds by cause", "They sum to everything the gang held; all but compute is what it lost.",
            Ask(f"sort_desc({last('ledger_seconds_total', RUN, by='cause')} > 0)", "{{cause}}"), unit="s", width=16,
        ),
        p.bars(
            "Measured over forecast", "1 is a forecast that came true. Twice off: `gangline fabric explain`,"
            " or other tenants on the same servers.",
            Ask(last("plan_forecast_ratio", RUN, by="part"), "{{part}}"), unit="percentunit", steps=_FORECAST, most=2,
        ),
    ]  # fmt: skip


def _state_of(stage: str) -> str:
    """The state of a stage as its place among all states."""
    mine = (RUN, equal("stage", stage))
    ranked = " or ".join(
        f"{at} * {now('run_stage', *mine, equal('state', state), by='run, state')}"
        for at, state in enumerate(STAGE_STATES)
    )
    return f"max by (run) ({ranked})"


def _members() -> list[object]:
    return [
        p.curves(
            "Members of the federation", "Fewer have accepted than the quorum: `gangline federate members` says why;"
            " fewer answer than have accepted: the log of that member does.",
            Ask(now("federated_members", RUN, by="state"), "{{state}}"), least=0, width=8,
        ),
        p.curves(
            "Time of a round", "Lost attempts included; near federated.round_seconds a member is too slow or silent.",
            Ask(now("federated_round_seconds", RUN), "round"), unit="s", least=0, width=8,
        ),
        p.bars(
            "Answers refused, rounds lost", "By reason. budget and code are a member's own word; not_finite and shape"
            " are changes that would have spoiled the model.",
            Ask(f"sort_desc({last('federated_refused_total', RUN, by='reason')} > 0)", "{{reason}}"),
            Ask(f"{last('federated_lost_rounds_total', RUN)} > 0", "lost rounds"),
        ),
    ]  # fmt: skip


def _devices() -> list[object]:
    return [
        p.curves(
            "GPUs at work", "By the DCGM exporter. Idle while a step runs: see where a step goes.",
            Ask(f"run_gpu:gangline_gpu_busy:ratio{{{RUN}}}", "{{Hostname}} gpu {{gpu}}"),
            unit="percentunit", least=0, most=1, width=8,
        ),
        p.curves(
            "GPU memory in use", "Of each device, with everything that is on it.",
            Ask(f"run_gpu:gangline_gpu_memory_used_bytes{{{RUN}}}", "{{Hostname}} gpu {{gpu}}"),
            unit="bytes", least=0, width=8,
        ),
        p.curves(
            "Processors of its servers", "Busy all the time while steps wait for data: more servers, or fewer workers.",
            Ask(f"run_node:gangline_node_cpu_busy:ratio{{{RUN}}}", "{{node}}"),
            unit="percentunit", least=0, most=1, width=8,
        ),
    ]  # fmt: skip
