"""Generals, the strategy game of generals.io, by the package generals-bots."""
