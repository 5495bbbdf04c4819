"""Ways to break a bundle, a part for each kind; tamper.py makes them all.

The parts add their mutations to one list, in the order of their names here: the vectors are made in it.
"""
from . import contents, order, tail, checkpoint, rotation, files, identity, passkeys  # noqa: F401
from . import transitions, path, stores, registry, retention, runs, steps, inputs, runbooks, start, substitutes, origins, governance, proposals, dead_letters  # noqa: F401
from .kit import MUTATIONS, Skip, Tamper

__all__ = ["MUTATIONS", "Skip", "Tamper"]
