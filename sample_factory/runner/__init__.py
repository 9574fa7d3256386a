"""Runs many experiments: grids of parameters on one machine, on Slurm or on Ray."""
