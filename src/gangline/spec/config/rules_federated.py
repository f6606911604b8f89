"""Rules of `[federated]` in `line.toml`, of `[federation]` in `site.toml` and of `member.toml`."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from gangline.spec.config import grammar
from gangline.spec.config.line import Line
from gangline.spec.config.problems import ConfigProblem, at_least, show
from gangline.spec.config.secrets import is_reference, parse_reference
from gangline.spec.config.site_tables import KITS, FederationTable, MemberTable
from gangline.spec.federated import FederatedTable

SPLIT = re.compile(r"iid|dirichlet:(?P<alpha>\d+(\.\d+)?)|column:(?P<column>[A-Za-z_][\w.-]{0,63})")
"""How data are shared out among simulated members."""
LEAST_SUM = 3
"""Members of the smallest secure sum: the sum of two shows each of them the other's change."""
_MEMBER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")
_KIT_REFERENCE = re.compile(rf"secret:k8s:{KITS}(-[a-z0-9.-]*)?/[A-Za-z0-9._-]+")
_PORTS_OF_GANGS = range(29_500, 29_700)
_KEY_ID = re.compile(r"[0-9a-f]{8}")


def federated_table_rules(table: FederatedTable) -> Iterator[ConfigProblem]:
    """Problems of `[federated]` by itself."""
    yield from _quorum_rules(table)
    yield from _merge_rules(table)
    yield from _privacy_rules(table)
    yield from _simulation_rules(table)


def federated_rules(line: Line) -> Iterator[ConfigProblem]:
    """Problems of `[federated]` with the other tables of the line."""
    if line.federated is not None:
        steps, each_round = line.train.steps, line.federated.local_steps
        if each_round >= 1 and steps >= 1 and steps % each_round:
            near = " or ".join(str(divisor) for divisor in _nearest_divisors(steps, each_round))
            wanted = f"a divisor of train.steps = {steps}, for rounds are whole"
            yield ConfigProblem("federated.local_steps", wanted, show(each_round), f"{near} works")
        yield from _line_rules(line, line.federated)


def federation_rules(table: FederationTable) -> Iterator[ConfigProblem]:
    """Problems of `[federation]`."""
    if table.kit is None:
        for key, value in (("admin", table.admin), ("members", table.members)):
            if value:
                works = 'name the folder of the server kit: kit = "/srv/federation/server"'
                yield ConfigProblem("federation.kit", f"a kit with federation.{key}", "none", works)
        return
    yield from _cluster_rules(table) if is_reference(table.kit) else _folder_rules(table)
    if len(set(table.members)) < 2:
        works = "list the names of the certificates that may take part"
        yield ConfigProblem("federation.members", "at least two names", show(table.members), works)
    for name in sorted({member for member in table.members if table.members.count(member) > 1}):
        yield ConfigProblem("federation.members", "each name once", f"{show(name)} twice", "keep one")
    for index, name in enumerate(table.members):
        if not _MEMBER.fullmatch(name):
            wanted = "the name of a certificate, of letters, digits and ._@-"
            yield ConfigProblem(f"federation.members[{index}]", wanted, show(name), '"leipzig" works')


def member_rules(member: MemberTable) -> Iterator[ConfigProblem]:
    """Problems of a member's settings."""
    path = PurePosixPath(member.data)
    if not path.is_absolute() or ".." in path.parts or not member.data.isprintable():
        yield ConfigProblem("data", "an absolute path", show(member.data), '"/srv/cohort" works')
    for index, key_id in enumerate(member.signers):
        if not _KEY_ID.fullmatch(key_id):
            yield ConfigProblem(
                f"signers[{index}]", "the id of a key, 8 hex digits", show(key_id), "`gangline keys` lists them"
            )
    if member.approve == "signed" and not member.signers:
        yield ConfigProblem("signers", 'a key, as approve is "signed"', "none", 'approve = "each" asks for every code')


def _folder_rules(table: FederationTable) -> Iterator[ConfigProblem]:
    """Problems of a coordinator next to the driver, whose kits are folders."""
    if table.admin is None:
        works = 'admin = "secret:file:/srv/federation/admin@example.org"'
        yield ConfigProblem("federation.admin", "a reference to the folder of the admin kit", "none", works)
    elif not is_reference(table.admin) or parse_reference(table.admin).kind != "file":
        works = "write secret:file:PATH, as kit is a folder, too"
        yield ConfigProblem("federation.admin", "a reference to a folder", "a value that is not shown", works)


def _cluster_rules(table: FederationTable) -> Iterator[ConfigProblem]:
    """Problems of a coordinator in a pod, whose kits are Secrets of the cluster."""
    for key, value in (("kit", table.kit), ("admin", table.admin)):
        if value is None or not _KIT_REFERENCE.fullmatch(value):
            wanted = f"secret:k8s:NAME/KEY, with a name that is {KITS} or begins with {KITS}-"
            works = f"secret:k8s:{KITS}/{key}.tar; pods may mount no other Secret"
            yield ConfigProblem(f"federation.{key}", wanted, "none" if value is None else "another reference", works)
    if table.image is None or not grammar.IMAGE.fullmatch(table.image):
        works = "IMAGE@sha256:DIGEST works; it has gangline[federated], and whatever runs in it reads the kits"
        yield ConfigProblem("federation.image", "an image with @sha256:", show(table.image), works)
    if not grammar.LABEL.fullmatch(table.service) or not table.service[0].isalpha():
        yield ConfigProblem("federation.service", "the name of a Service", show(table.service), '"federation" works')
    if not 1024 <= table.port <= 65_535 or table.port in _PORTS_OF_GANGS:
        wanted = "a port from 1024 to 65535 that ranks do not use"
        yield ConfigProblem("federation.port", wanted, show(table.port), "8002 is NVFlare's own")


def _quorum_rules(table: FederatedTable) -> Iterator[ConfigProblem]:
    least = LEAST_SUM if table.secure_sum or table.merge == "trimmed" else 2
    works = "the sum of two shows each the other's change" if table.secure_sum else "one answer is no federation"
    if table.merge == "trimmed" and table.quorum < least:
        works = "trimmed leaves out one answer at each end"
    yield from at_least("federated.quorum", table.quorum, least, works)


def _nearest_divisors(total: int, wanted: int) -> list[int]:
    """The largest divisor of `total` below `wanted`, and the smallest above."""
    below = next(each for each in range(min(wanted, total), 0, -1) if total % each == 0)
    above = next((each for each in range(wanted, total + 1) if total % each == 0), None)
    return [below] if above is None else [below, above]


def _merge_rules(table: FederatedTable) -> Iterator[ConfigProblem]:
    if table.server == "adam" and table.server_momentum:
        works = 'leave it out, or server = "sgd"'
        yield ConfigProblem("federated.server_momentum", "none with adam", show(table.server_momentum), works)
    if table.merge != "mean" and table.most_samples is not None:
        works = f"leave it out: in a {table.merge} all members weigh equally"
        yield ConfigProblem("federated.most_samples", 'none but with merge = "mean"', show(table.most_samples), works)
    if table.secure_sum and table.merge != "mean":
        works = "a sum shows no single change, and the others need each of them"
        yield ConfigProblem("federated.merge", "mean with secure_sum", show(table.merge), works)
    if table.secure_sum and table.clip_norm is None:
        works = "clip_norm = 1.0: it is the range of the numbers that are summed"
        yield ConfigProblem("federated.clip_norm", "a norm with secure_sum", "none", works)


def _privacy_rules(table: FederatedTable) -> Iterator[ConfigProblem]:
    if table.epsilon is not None:
        if table.clip_grad is None:
            works = "clip_grad = 1.0: noise is in proportion to it"
            yield ConfigProblem("federated.clip_grad", "a norm with epsilon", "none", works)
    elif table.clip_grad is not None:
        works = "leave it out, or ask for privacy: epsilon = 4.0"
        yield ConfigProblem("federated.clip_grad", "none without epsilon", show(table.clip_grad), works)


def _simulation_rules(table: FederatedTable) -> Iterator[ConfigProblem]:
    simulate, least = table.simulate, LEAST_SUM if table.secure_sum else 2
    yield from at_least("federated.simulate.members", simulate.members, least)
    match = SPLIT.fullmatch(simulate.split)
    if match is None or (match["alpha"] is not None and not float(match["alpha"])):
        wanted = "iid, dirichlet:A with A above 0, or column:NAME"
        yield ConfigProblem("federated.simulate.split", wanted, show(simulate.split), '"dirichlet:0.3" works')


def _line_rules(line: Line, table: FederatedTable) -> Iterator[ConfigProblem]:
    """What a member cannot do, or what would say nothing."""
    if line.project.task is None:
        works = 'task = "module:Class"; a program of Flower runs as project.command without [federated]'
        yield ConfigProblem("federated", "a project.task", "a command", works)
    if table.evaluate == "coordinator" and not (line.data.text or line.data.shards or line.data.mix):
        works = 'evaluate = "members", or data that are the coordinator\'s own'
        yield ConfigProblem("federated.evaluate", "a table [data] for the coordinator", "none", works)
    memory = line.train.memory
    refused = (
        ("train.strategy", line.train.strategy, ("auto", "none"), "a member trains on one rank"),
        ("train.recovery.mode", line.train.recovery.mode, ("restart",), "a restart repeats one round"),
        ("train.recovery.non_finite", line.train.recovery.non_finite, ("stop",), "such answers are refused by reason"),
        ("train.precision", line.train.precision, ("auto", "fp32", "bf16"), "fp16 scales gradients by their history"),
        ("train.compile", line.train.compile, (False,), "leave it out"),
        ("train.compression.kind", line.train.compression.kind, ("none",), "nothing is averaged between ranks"),
        ("train.start.checkpoint", line.train.start.checkpoint, (None,), "leave it out: rounds begin with the first"),
        ("train.stop_at", line.train.stop_at, (None,), "fewer train.steps are fewer rounds"),
        ("train.checkpoint.every", line.train.checkpoint.every, ("auto",), "every round is saved"),
        ("train.memory.loss_chunks", memory.loss_chunks, ("auto", 1), "leave it out"),
        ("train.memory.offload", memory.offload, ("auto", "none"), "leave it out"),
        ("train.memory.activation_checkpointing", memory.activation_checkpointing, ("auto", "none"), "leave it out"),
        ("data.workers", line.data.workers, ("auto", 0), "a member reads its samples itself"),
        ("data.order", line.data.order, ("auto", "full"), "a member shuffles its own samples"),
        ("optimizer.rule", line.optimizer.get("rule"), (None,), "[optimizer.elementwise] is the members'"),
        ("evaluate.every_steps", line.evaluate.every_steps, (None,), "the model is judged behind the last round"),
        ("prove.replay_steps", line.prove.replay_steps, (0,), "members train again by other samples"),
    )  # fmt: skip
    for key, value, allowed, works in refused:
        if value not in allowed:
            words = " or ".join("nothing" if each is None else show(each) for each in allowed)
            yield ConfigProblem(key, f"{words} with [federated]", show(value), works)
    if isinstance(line.train.ranks, tuple):
        works = "a number: simulated members are dealt to so many ranks"
        yield ConfigProblem("train.ranks", "a fixed number with [federated]", show(line.train.ranks), works)
    if table.epsilon is not None and line.train.clip_norm is not None:
        works = "leave it out: federated.clip_grad clips the gradient of each record"
        yield ConfigProblem("train.clip_norm", "none with federated.epsilon", show(line.train.clip_norm), works)
