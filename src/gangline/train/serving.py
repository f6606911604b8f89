"""The series of one rank, served to Prometheus from the events it writes. No torch."""

from gangline.spec.plan import Plan
from gangline.train.account.events import EventLog
from gangline.train.environment import RankEnvironment


def serve_metrics(environment: RankEnvironment, plan: Plan, events: EventLog) -> None:
    """Serve this rank's series where the launcher gave a port; a port in use costs the series, not the training."""
    if environment.metrics_port is None:
        return
    from gangline.metrics.exporter import RankExporter

    port = environment.metrics_port + environment.local_rank
    exporter = RankExporter(
        environment.run,
        environment.rank,
        port,
        world_size=plan.world_size,
        steps=plan.steps,
        trains=plan.role == "train",
        host="127.0.0.1" if environment.on_loopback else "0.0.0.0",  # noqa: S104  # of a pod, behind its network policy
    )
    if exporter.problem is not None:
        events.emit("metrics_not_served", port=port, reason=exporter.problem)
    else:
        events.listeners.append(exporter.observe)
