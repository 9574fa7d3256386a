"""The section of self-play against past selves."""

from dataclasses import dataclass

from sample_factory.config.flags import flag


@dataclass(frozen=True)
class SelfplayFlags:
    """Self-play: in a multi-agent env, policies also play against frozen past selves."""

    selfplay_past_share: float = flag(
        0.0,
        "share of matches in which one agent learns and past selves play the others; 0 turns it off",
        at_least=0,
        at_most=1,
    )
    selfplay_sampling: str = flag(
        "uniform",
        "how a past self is drawn: all alike, or prioritized: by (1 - win rate against it)^p",
        choices=("uniform", "prioritized"),
    )
    selfplay_priority_exponent: float = flag(2.0, "p of that: the higher, the more of the hardest", above=0)
    selfplay_max_opponents: int = flag(
        16,
        "past selves of each policy that are in use, spread evenly over its training; each takes the memory "
        "of a model in every policy worker",
        at_least=1,
        at_most=100,
    )
    selfplay_snapshot_env_steps: int = flag(
        1_000_000,
        "env frames of a policy between the snapshots of it (milestones) that are played against",
        at_least=1,
    )
