"""The section of training on several machines."""

from dataclasses import dataclass

from sample_factory.config.flags import flag

EVERY = "every"
LAG = "lag"
DIVERGENCE = "divergence"
# --weights_sync_threshold that is used if none is given: SGD steps, nats.
DEFAULT_THRESHOLDS = {LAG: 20.0, DIVERGENCE: 0.003}


@dataclass(frozen=True)
class ClusterFlags:
    """Several machines: rollout and policy workers on all of them, the learner on this one."""

    num_nodes: int = flag(
        1,
        "machines that sample, this one included; the others join and leave through Ray",
        at_least=1,
        at_most=1000,
    )
    ray_address: str | None = flag(
        None,
        "address of a Ray cluster, auto, or local; RAY_ADDRESS if left out, else Ray on this machine alone",
        never_foreign=True,
    )
    node_workers: int = flag(
        0, "rollout workers on each other machine; 0: one per usable core", at_least=0, at_most=10_000
    )
    node_envs_per_worker: int = flag(
        0,
        "envs of each rollout worker of other machines; 0: --num_envs_per_worker",
        at_least=0,
        at_most=100_000,
    )
    weights_sync: str = flag(
        EVERY,
        "when other machines fetch new weights; every: whenever there are any; lag, divergence: when theirs "
        "are more than --weights_sync_threshold SGD steps old, or diverge by more from the learner's",
        choices=(EVERY, LAG, DIVERGENCE),
    )
    weights_sync_threshold: float | None = flag(
        None, "--weights_sync=lag: SGD steps (20 if left out); divergence: mean KL in nats (0.003)", above=0
    )

    @property
    def threshold(self) -> float | None:
        """The threshold of --weights_sync; None if it has none."""
        if self.weights_sync == EVERY:
            return None
        return self.weights_sync_threshold or DEFAULT_THRESHOLDS[self.weights_sync]
