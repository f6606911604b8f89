"""Kits, plans and offers for tests of members, without a process."""

import json

from cryptography.hazmat.primitives.asymmetric import ec

from gangline.flare.kit import CLIENT, open_kit
from gangline.flare.member.federation_member import FederationMember, write_settings
from gangline.flare.offer import make_offer
from gangline.flare.orders import make_orders
from gangline.signing.keys import SigningKey, private_pem
from gangline.spec.federated import FederatedTable, FederationPlan
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, Plan, ProgramSpec
from gangline.storage.objects.code_layer import LayerFile, pack

ROSTER = ("aachen", "bremen", "celle")
LAYER = pack(
    [LayerFile("model.py", b"raise SystemExit('imported')\n"), LayerFile("notes/read.md", b"# What it does\n")]
)


def new_key():
    return SigningKey(private_pem(ec.generate_private_key(ec.SECP256R1())), "test")


def new_plan(*, run="r-1", roster=ROSTER, steps=4, layer_task="model:Digits", **table):
    given = {"local_steps": 2, "quorum": 2} | table
    return Plan(
        run=run, project="sepsis", name="fedavg-3", run_prefix=f"runs/sepsis/55d01e7aa/{run}", steps=steps,
        program=ProgramSpec(task=layer_task), strategy="none", mesh=Mesh(), global_batch=8, micro_batch=8,
        checkpoint=CheckpointPolicy(every=2),
        federation=FederationPlan(table=FederatedTable(**given), roster=roster, simulated=False),
    )  # fmt: skip


def new_orders(plan, code, key=None):
    return make_orders(plan, code, key or new_key(), wait_seconds=0.0)


def new_offer(key, *, layer=LAYER, **plan):
    """Offer as bytes, its signature and the layer."""
    offer, signature = make_offer(new_plan(**plan), layer, key)
    return offer.to_json(), signature, layer


def write_kit(folder, name="aachen"):
    """Files of a client kit, as far as a member's parts read them."""
    (folder / "startup").mkdir(parents=True)
    (folder / "local").mkdir()
    for file in ("client.crt", "client.key", "rootCA.pem"):
        (folder / "startup" / file).write_text("")
    (folder / "startup" / "fed_client.json").write_text(json.dumps({"client": {"fqsn": name}}))
    return open_kit(folder, CLIENT)


def new_member(tmp_path, *, epsilon=0.0, name="aachen", more=""):
    """A member with settings of its own."""
    kit = write_kit(tmp_path / name, name)
    data = tmp_path / f"{name}-data"
    data.mkdir()
    write_settings(kit, data=data, epsilon=epsilon)
    with kit.settings.open("a") as file:
        file.write(more)
    return kit, FederationMember(kit)
