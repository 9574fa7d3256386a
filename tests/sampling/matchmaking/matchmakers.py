"""Makes the built-in matchmaking of an env, without a rollout worker."""

from sample_factory.sampling.matchmaking.matchmaker import Matchmaker
from sample_factory.sampling.matchmaking.matchmaking import MatchSetup, PastSelves


def random_matchmaker(num_policies, kind_of_agent, mix_policies, rng, past_selves=None):
    return Matchmaker(MatchSetup(num_policies, kind_of_agent, mix_policies, rng, past_selves or PastSelves()))
