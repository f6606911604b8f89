"""`gangline placer`: gives queued gangs of a cluster their servers, whole gangs only."""

import signal
import threading
from functools import partial

from gangline.cli.options import HERE, AliveOption, RepoOption, SiteOption
from gangline.cli.workspace import open_workspace
from gangline.line.gangs.launchers import open_cluster
from gangline.line.gangs.stated_network import stated_network


def command(*, repo: RepoOption = HERE, site: SiteOption = None, alive: AliveOption = None) -> None:
    """Place queued gangs until SIGTERM; for clusters without a queue that places. Several of them are harmless."""
    from gangline.launch.kubernetes.placement.placer import run_placer
    from gangline.line.run.lease import this_process
    from gangline.storage.site_paths import touch

    workspace = open_workspace(repo, site)
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    liveness = {"passed": partial(touch, alive)} if alive else {}
    cluster, ledger = open_cluster(workspace.site, workspace.environ), workspace.site.launch.ledger
    network = stated_network(workspace.environ)
    run_placer(cluster, holder=this_process(), stop=over, ledger=ledger, fabric=network, **liveness)
