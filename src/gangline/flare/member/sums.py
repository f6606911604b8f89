"""A member's part in secure sums over NVFlare: its answer stays here, a signed key goes, then one masked vector.

The round and attempt that were begun last are on the disk before the key is made: no later process answers them again.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from gangline.errors import IntegrityError, storage_errors
from gangline.federated.protocol import Contribution, RoundCall
from gangline.federated.secure_sum import Identity, Occasion, SecureSum
from gangline.federated.sum_vector import MOST_METRICS, to_bytes
from gangline.flare.kit import Kit
from gangline.flare.offer import Offer
from gangline.spec.codec import Document
from gangline.storage.folder.durable_files import replace_file


@dataclass(frozen=True, kw_only=True, slots=True)
class _Begun(Document):
    number: int = 0
    attempt: int = 0


class MemberSums:
    """Secure sums of one run at one member."""

    def __init__(self, kit: Kit, offer: Offer, *, least: int) -> None:
        """Args:
        kit: Its certificate and key sign.
        offer: Of the run, with the roster that was approved.
        least: Smallest group whose sum this member joins.
        """
        startup = kit.folder / "startup"
        identity = Identity.of_pem(
            *((startup / name).read_bytes() for name in ("client.crt", "client.key", "rootCA.pem"))
        )
        terms = offer.terms
        self._offer, self._plan, self._table = offer, terms.plan, terms.table
        self._roster = terms.roster
        self._file: Path = kit.own / "sums" / f"{offer.digest[:16]}.json"
        begun = _Begun.from_json(self._file.read_bytes()) if self._file.exists() else _Begun()
        self._sum = SecureSum(identity, least=least, begun=(begun.number, begun.attempt))
        self._answer: Contribution | None = None
        self._call: RoundCall | None = None

    def begin(self, call: RoundCall, answer: Contribution) -> bytes:
        """Signed key for the sum of a call; `answer` stays here.

        Raises:
            IntegrityError: This attempt, or a later one, was begun before.
            StorageError: The disk is full.
        """
        if (call.number, call.attempt) > self._sum.begun:
            with storage_errors(self._file):
                self._file.parent.mkdir(mode=0o700, exist_ok=True)
                replace_file(self._file, _Begun(number=call.number, attempt=call.attempt).to_json(), durable=True)
        key = self._sum.begin(
            Occasion(
                run=self._plan.run, round=call.number, attempt=call.attempt, code=self._offer.code, roster=self._roster
            )
        )
        self._call, self._answer = call, answer
        return key

    def mask(self, number: int, attempt: int, keys: list[bytes], names: list[str]) -> bytes:
        """The answer under masks, once; `names` are the metrics of all members, in which this one may lack some.

        Raises:
            IntegrityError: The list of keys breaks a rule, or the sum is of another round, or was answered.
        """
        call, answer = self._call, self._answer
        self._call = self._answer = None
        if call is None or answer is None or (number, attempt) != (call.number, call.attempt):
            raise IntegrityError(f"round {number}, attempt {attempt}: wanted the sum that was begun, found another")
        if len(names) > MOST_METRICS or not set(answer.metrics) <= set(names) or sorted(set(names)) != names:
            raise IntegrityError(f"wanted names of metrics with {sorted(answer.metrics)}, found {len(names)} others")
        given = replace(answer, metrics={name: answer.metrics.get(name, (0.0, 0.0)) for name in names})
        vector = to_bytes(given, self._table, roster=len(self._roster))
        return self._sum.mask(keys, vector, num_numbers=call.num_numbers)
