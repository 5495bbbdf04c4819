"""Checkpoints and cosignatures that are not what they seem."""
from __future__ import annotations

from bundle import REGISTRY, Key, det, signed_note, vkey
from .kit import Skip, Tamper, known_later, mutation


@mutation("log-forked", "insider", "integrity", "witness-quorum")
def _(t: Tamper) -> None:
    t.use_policy = True     # another history, right in itself: only the witnesses know better
    t.one().salt = det("another history").hex()


@mutation("checkpoint-of-another-history", "naive", "integrity", "inclusion-invalid")
def _(t: Tamper) -> None:
    t.b.checkpoint = signed_note(t.b.manifest["origin"], t.b.manifest["tree_size"], det("another root"), t.log, [], 1_767_600_000)


@mutation("cosignature-dropped", "naive", "integrity", "witness-quorum")
def _(t: Tamper) -> None:
    t.use_policy = True
    text, _, signatures = t.b.checkpoint.partition("\n\n")
    lines = signatures.splitlines(keepends=True)
    if len(lines) < 2:
        raise Skip("no cosignature to drop")
    t.b.checkpoint = text + "\n\n" + "".join(line for line in lines if line.startswith(f"\u2014 {t.b.manifest['origin']} "))


@mutation("cosignature-moved", "insider", "integrity", "witness-quorum")
def _(t: Tamper) -> None:
    t.use_policy = True     # the cosignatures of the true checkpoint under the false one
    old = t.b.checkpoint.partition("\n\n")[2].splitlines(keepends=True)
    t.one().salt = det("another history").hex()
    t.reseal()
    t.b.checkpoint += "".join(line for line in old if not line.startswith(f"\u2014 {t.b.manifest['origin']} "))


@mutation("checkpoint-signed-by-another-key", "insider", "integrity", "checkpoint-invalid")
def _(t: Tamper) -> None:
    t.reseal(Key(det("attacker")))


@mutation("checkpoint-key-not-in-registry", "insider", "integrity", "checkpoint-key-unknown")
def _(t: Tamper) -> None:
    mine = Key(det("attacker"))
    t.reseal(mine)
    t.vkey = vkey(t.b.manifest["origin"], mine)


def revoke_log_key(t: Tamper) -> None:
    """The registry ends with the revocation of the key that signs the log."""
    if t.window():
        raise Skip("the export ends the registry")
    ref, token = t.holder("actors:manage")
    t.forge(t.b.chain(REGISTRY)[-1], "key_revoked", ref, {"actor_ref": t.config()["server_actor_ref"], "key_id": t.log.key_id}, token).head["registry_seq"] += 1
    known_later(t)


@mutation("checkpoint-key-revoked", "insider", "integrity", "checkpoint-key-unknown")
def _(t: Tamper) -> None:
    if t.b.rotations:
        raise Skip("a rotated log: see rotation-then-revoked")
    revoke_log_key(t)


@mutation("rotation-then-revoked", "insider", "integrity", "checkpoint-key-unknown", "rotation-invalid")
def _(t: Tamper) -> None:
    if not t.b.rotations:
        raise Skip("the log was not rotated")
    revoke_log_key(t)


@mutation("checkpoint-size-edited", "naive", "integrity", "checkpoint-invalid")
def _(t: Tamper) -> None:
    lines = t.b.checkpoint.split("\n")
    lines[1] = str(int(lines[1]) + 1)
    t.b.checkpoint = "\n".join(lines)


@mutation("manifest-size-edited", "naive", "integrity", "checkpoint-invalid")
def _(t: Tamper) -> None:
    t.b.manifest["tree_size"] += 1
