"""Readable names of TensorBoard tags, for axes and tables."""

from sample_factory.monitoring.policy_progress import TAGS

# Tag -> label. {} is the number of episodes of a mean, the flag --stats_avg.
LABELS = {
    TAGS["reward"]: "reward (mean of the last {} episodes)",
    TAGS["true_objective"]: "true objective (mean of the last {} episodes)",
    TAGS["len"]: "episode length in env frames (mean of the last {} episodes)",
    f"{TAGS['reward']}_min": "lowest reward of the last {} episodes",
    f"{TAGS['reward']}_max": "highest reward of the last {} episodes",
    f"{TAGS['true_objective']}_min": "lowest true objective of the last {} episodes",
    f"{TAGS['true_objective']}_max": "highest true objective of the last {} episodes",
    f"{TAGS['len']}_min": "shortest of the last {} episodes (env frames)",
    f"{TAGS['len']}_max": "longest of the last {} episodes (env frames)",
    "0_aux/_fps": "env frames per second",
    "0_aux/_sample_throughput": "samples per second",
    "0_aux/env_frames": "env frames",
    "0_aux/policy_lag": "policy lag (SGD steps)",
    "0_aux/master_process_memory_mb": "memory of the main process (MB)",
    "train/lr": "learning rate",
    "train/kl_divergence": "KL divergence",
}
MEAN_OF_EPISODES = "0_aux/avg_"


def label_of(tag: str, stats_avg: int) -> str:
    """Returns a text for the axis of a tag; a tag that is not known gets its name without its group."""
    if tag in LABELS:
        return LABELS[tag].format(stats_avg)
    if tag.startswith(MEAN_OF_EPISODES):
        return f"{_words(tag.removeprefix(MEAN_OF_EPISODES))} (mean of the last {stats_avg} episodes)"
    return _words(tag.rpartition("/")[2]) or tag


def _words(name: str) -> str:
    return name.replace("_", " ").strip()
