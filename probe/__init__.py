"""Attacks a real server from outside and says what held. `python -m probe --help`, usually through `make probe`."""
