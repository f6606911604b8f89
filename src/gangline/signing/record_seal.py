"""Seal of a record: a driver's signature over all that later stages, other runs and promotion rely on.

If the store lends credentials by prefix, gangs cannot write a record; the seal protects it elsewhere: a program that
changed it has no key that the site trusts. Not covered is what people and services may write without a key: a request
to cancel, links, events.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gangline.errors import IntegrityError
from gangline.spec.codec import canonical_of_set_fields
from gangline.spec.config.site import Site
from gangline.spec.identity import check_identity
from gangline.spec.record import Record, Seal

if TYPE_CHECKING:
    from gangline.signing.keys import PublicKey, SigningKey

FORM = 3
"""How the signed bytes are made; seals of an earlier form are not read."""
_PURPOSE = b"gangline record %d\n" % FORM
PLACEHOLDER = Seal(form=FORM, key_id="0" * 8, signature="0" * 256)
"""Seal that takes as much room as any."""


def sealed_part(record: Record) -> Record:
    """The record without what the seal does not cover."""
    run = replace(record.run, cancel_requested=None)
    return replace(record, seal=None, seq=0, nonce="", run=run, links={}, events=())


@dataclass(frozen=True, slots=True)
class Sealer:
    """Seals with the site's key; accepts the seals of all keys that the site trusts."""

    key: "SigningKey"
    trusted: "Mapping[str, PublicKey]"
    forks: "Mapping[str, PublicKey]" = field(default_factory=dict)
    """Keys of drivers that are given commits of forks alone: their seal counts until the run is approved."""

    @staticmethod
    def of(site: Site, environ: Mapping[str, str]) -> "Sealer":
        """Raises ConfigError where the site's key cannot be read."""
        from gangline.signing.keys import sealing_keys, signing_key

        found, forks = sealing_keys(site, environ), site.sign.forks
        return Sealer(
            signing_key(site, environ),
            {key_id: key for key_id, key in found.items() if key_id not in forks},
            {key_id: key for key_id, key in found.items() if key_id in forks},
        )

    def seal(self, record: Record) -> Record:
        """Raises IntegrityError where this driver's key is one for forks, and `record` is another's or approved."""
        if self.key.key_id not in self._keys(record):
            raise IntegrityError(
                f"wanted a fork's run that is not approved, found {record.run.id}: key {self.key.key_id} of this"
                " site seals no other, as sign.forks says; a driver with the project's key can continue it"
            )
        signature = self.key.sign(_signed_bytes(record))
        return replace(record, seal=Seal(form=FORM, key_id=self.key.key_id, signature=signature))

    def check(self, record: Record) -> Record:
        """Check the seal by the keys that drivers of this site accept; see `check_seal`."""
        return check_seal(record, self._keys(record))

    def holds(self, record: Record) -> bool:
        """Is this a record of a trusted driver, as that driver left it?"""
        try:
            self.check(record)
        except IntegrityError:
            return False
        return True

    def _keys(self, record: Record) -> "Mapping[str, PublicKey]":
        waits = record.commit.trust == "fork" and record.run.approved is None
        return {**self.forks, **self.trusted} if waits else self.trusted


def check_seal(record: Record, trusted: "Mapping[str, PublicKey]") -> Record:
    """`record`, once its seal is that of one of the keys and its id is that of its commit, line and attempt.

    Raises:
        IntegrityError: It has no seal, one of a key that is not trusted, or was changed after it was sealed.
    """
    run, seal = record.run.id, record.seal
    if seal is None or seal.form != FORM:
        found = "no seal" if seal is None else f"a seal of form {seal.form}, wanted form {FORM}"
        raise IntegrityError(
            f"{run} has {found}: another version of gangline wrote it; gangline run --again makes a new run"
        )
    key = trusted.get(seal.key_id)
    if key is None:
        raise IntegrityError(
            f"{run} is sealed by key {seal.key_id[:64]}, trusted here: {', '.join(sorted(trusted)) or 'none'};"
            " drivers of one store share sign.key, or name each other's keys in sign.identities"
        )
    try:
        key.verify(seal.signature, _signed_bytes(record))
    except IntegrityError as error:
        raise IntegrityError(
            f"{run} was changed after key {seal.key_id} sealed it; its contents are not used"
        ) from error
    check_identity(record)
    return record


def _signed_bytes(record: Record) -> bytes:
    return _PURPOSE + canonical_of_set_fields(sealed_part(record))
