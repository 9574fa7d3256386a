"""Flags of versions 1 and 2 that have no effect here."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sample_factory.config.flags import flag


@dataclass(frozen=True)
class RetiredFlags:
    """Accepted with a warning, so that commands of versions 1 and 2 work; `cfg` has them, for make_env
    functions that read them. The help says why a flag has no effect."""

    train_in_background_thread: bool = flag(True, "batching and training always overlap")
    use_spectral_norm: bool = flag(False, "no built-in layer ever used it")
    num_minibatches_to_accumulate: int = flag(-1, "use --num_batches_to_accumulate")
    heartbeat_interval: int = flag(20, "components are watched without heartbeats of their own")
    batched_sampling: bool = flag(False, "a vectorised environment is always sampled as a batch")
    pixel_format: str = flag("CHW", "the layout of an image is derived from its shape")
    use_record_episode_statistics: bool = flag(False, "scores of whole games are always reported")
    episode_counter: bool = flag(False, "an evaluation counts the episodes of each env")
    use_env_info_cache: bool = flag(False, "the environment is probed at each start")
    env_gpu_actions: bool = flag(False, "an environment gets NumPy arrays")
    env_gpu_observations: bool = flag(True, "an environment returns NumPy arrays")


RETIRED_FLAGS: Mapping[str, str] = {
    field.name: field.metadata["help"] for field in dataclasses.fields(RetiredFlags)
}
RETIRED_DEFAULTS: Mapping[str, Any] = dataclasses.asdict(RetiredFlags())
