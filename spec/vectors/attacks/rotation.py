"""Log keys that take over from others, and have no right to."""
from __future__ import annotations

from bundle import Key, det, log_line, rotation_note, signed_note, unb64, vkey
from .kit import Skip, Tamper, mutation


def parts(t: Tamper) -> tuple[str, int, bytes, str]:
    """Origin, size, root and old key of the last rotation."""
    if not t.b.rotations:
        raise Skip("the log has one key")
    origin, size, root, old, _ = t.b.rotations[-1]["note"].split("\n")[:5]
    return origin, int(size), unb64(root), old.removeprefix("rotated-from ")


def taken_over(t: Tamper, thief: Key) -> None:
    """The checkpoint is the thief's, and so is all that is left."""
    text = t.b.checkpoint.partition("\n\n")[0].split("\n")
    t.b.checkpoint = signed_note(text[0], int(text[1]), unb64(text[2]), thief, [], 1_767_600_000)
    t.b.log_vkey = vkey(text[0], thief) + "\n"


def note_to(t: Tamper, thief: Key) -> str:
    origin, size, root, old = parts(t)
    head, _, _ = rotation_note(origin, size, root, thief, thief, [thief]).partition("\n\n")
    return "\n".join(f"rotated-from {old}" if line.startswith("rotated-from ") else line for line in head.split("\n")) + "\n"


@mutation("rotation-forged-as-lost", "naive", "integrity", "checkpoint-invalid")
def _(t: Tamper) -> None:
    thief = Key(det("thief"))
    text = note_to(t, thief)    # "the old key was lost": nobody who trusts it follows
    t.b.rotations[-1]["note"] = text + "\n" + log_line(text.split("\n")[0], thief, text)
    taken_over(t, thief)


@mutation("rotation-with-a-moved-signature", "naive", "integrity", "rotation-invalid")
def _(t: Tamper) -> None:
    thief = Key(det("thief"))
    text, true = note_to(t, thief), t.b.rotations[-1]["note"].partition("\n\n")[2].splitlines(keepends=True)
    t.b.rotations[-1]["note"] = text + "\n" + true[0] + log_line(text.split("\n")[0], thief, text)
    taken_over(t, thief)


@mutation("rotation-note-edited", "naive", "integrity", "rotation-invalid")
def _(t: Tamper) -> None:
    _, size, _, _ = parts(t)
    t.b.rotations[-1]["note"] = t.b.rotations[-1]["note"].replace(f"\n{size}\n", f"\n{size - 1}\n", 1)


@mutation("rotation-not-signed-by-the-new-key", "naive", "integrity", "rotation-invalid")
def _(t: Tamper) -> None:
    parts(t)
    text, _, lines = t.b.rotations[-1]["note"].partition("\n\n")
    t.b.rotations[-1]["note"] = text + "\n\n" + lines.splitlines(keepends=True)[0]


@mutation("rotation-proof-edited", "naive", "integrity", "rotation-invalid")
def _(t: Tamper) -> None:
    parts(t)
    t.b.rotations[-1]["proof"][0] = det("another subtree").hex()


@mutation("rotation-left-out", "naive", "integrity", "rotation-invalid", "checkpoint-invalid")
def _(t: Tamper) -> None:
    parts(t)
    if vkey(t.b.manifest["origin"], t.log) == t.keys["vkey"]:
        raise Skip("the auditor trusts the last key and needs no note")
    del t.b.rotations[-1]


@mutation("rotations-in-another-order", "naive", "integrity", "rotation-invalid")
def _(t: Tamper) -> None:
    parts(t)
    if len(t.b.rotations) < 2:
        raise Skip("one rotation has no order")
    t.b.rotations.reverse()
