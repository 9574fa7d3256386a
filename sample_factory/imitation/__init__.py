"""Behaviour cloning: trains a policy on recorded games before it is trained by reinforcement learning."""
