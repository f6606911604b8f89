"""Records as short as they may be, and who seals them."""

from cryptography.hazmat.primitives.asymmetric import ec

from gangline.signing.keys import SigningKey, private_pem
from gangline.signing.record_seal import Sealer
from gangline.spec.identity import run_id
from gangline.spec.record import CommitInfo, Inputs, Record, RunInfo

SHA = "9f31c2a0" * 5
LINE = "b" * 64


def record(run: str = "cheap-9f31c2a0-k7q2mx", *, branch: str | None = "main", created: str = "2026-01-01") -> Record:
    return Record(
        run=RunInfo(id=run, project="cheap", created=created),
        commit=CommitInfo(sha=SHA, tree="a" * 40, branch=branch, protected=True),
        inputs=Inputs(line=LINE),
    )


def driven(*, created: str = "2026-01-01") -> Record:
    """A record whose id is that of its question, as drivers demand."""
    made = record(created=created)
    return record(run_id("cheap", made.commit, line=LINE, attempt=1), created=created)


def new_sealer(**trusted: SigningKey) -> Sealer:
    """With a key of its own, which it trusts beside the others."""
    key = SigningKey(private_pem(ec.generate_private_key(ec.SECP256R1())), "a test")
    return Sealer(key, {each.key_id: each.public for each in (key, *trusted.values())})
