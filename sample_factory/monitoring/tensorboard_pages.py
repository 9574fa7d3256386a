"""What TensorBoard shows beside the curves of all tags: a page of charts to look at first, and a legend."""

from collections.abc import Mapping

FIRST_PAGE = "Look at these first"
# Title of a chart -> regular expressions; it shows the tags that match one of them from their beginning.
CHARTS: Mapping[str, tuple[str, ...]] = {
    "reward (mean of the last episodes)": ("0_aux/avg_reward$", "0_aux/avg_true_reward$", "eval/reward$"),
    "episode length (env frames, mean of the last episodes)": ("0_aux/avg_len$",),
    "policy lag (SGD steps)": ("0_aux/policy_lag$",),
    "entropy of the policy": ("train/entropy$",),
    "KL divergence of the policy that acted and the trained one": ("train/kl_divergence$",),
    "value loss": ("train/value_loss$",),
}
# Tags, in which * stands for anything, -> their meaning. Version 1 named most of them.
_MEAN = "mean over the last `--stats_avg` episodes"
LEGEND: Mapping[str, str] = {
    "0_aux/avg_reward": f"rewards of an episode in all: {_MEAN}",
    "0_aux/avg_true_reward": f"the env's own objective, where it is not the reward: {_MEAN}",
    "0_aux/avg_len": f"env frames of an episode: {_MEAN}",
    "0_aux/avg_*_min, 0_aux/avg_*_max": "lowest and highest of these episodes",
    "len/len_min, len/len_max": "shortest and longest of these episodes",
    "0_aux/avg_*": f"a statistic that the env reports at the end of an episode: {_MEAN}",
    "0_aux/policy_lag": "SGD steps between the weights that acted and those that are trained: mean",
    "0_aux/_fps": "env frames per second of all policies, over the last minute",
    "0_aux/_sample_throughput": "samples per second that this policy is trained on, over the last minute",
    "0_aux/env_frames": "env frames that this policy was trained on, in all runs of the experiment",
    "train/loss": "sum of all losses, of a minibatch",
    "train/policy_loss, train/value_loss, train/*_loss": "each of these losses, with its coefficient",
    "train/entropy": "entropy of the policy (nats): falls as it decides",
    "train/value": "mean value that the critic expects",
    "train/value_delta, train/value_delta_max": (
        "change of the critic's values since the policy acted: mean and largest absolute difference"
    ),
    "train/kl_divergence, train/kl_divergence_max": (
        "KL divergence of the policy that acted and the trained one: mean and largest over the samples"
    ),
    "train/ratio_mean": "probability of an action now, divided by that when acting: mean distance from 1",
    "train/ratio_min, train/ratio_max": "smallest and largest such ratio",
    "train/fraction_clipped": "share of the samples with a ratio beyond the clip range",
    "train/fraction_truncated": "share of the samples with a ratio above `--vtrace_rho`",
    "train/max_abs_logprob": (
        "of the least likely action that was taken: the log-probability without its sign"
    ),
    "train/adv_min, train/adv_max, train/adv_std": "advantages: smallest, largest, standard deviation",
    "train/lr": "learning rate",
    "train/grad_norm": "norm of the gradient before it is clipped to `--max_grad_norm`",
    "train/skipped_steps": "SGD steps that were left out, since the gradient was not finite",
    "train/num_sgd_steps": "SGD steps in all runs of the experiment: the version of the weights",
    "train/valids_fraction": (
        "share of the policy's samples that is trained on; the others are older than `--max_policy_lag`"
    ),
    "train/version_diff_avg, train/version_diff_min, train/version_diff_max": (
        "policy lag of the samples of a batch (SGD steps): mean, smallest, largest"
    ),
    "train/returns_running_mean, train/returns_running_std": (
        "what `--normalize_returns` subtracts from returns and divides them by"
    ),
    "train/*": "others belong to `--algo` or to a network",
    "eval/*": "means of an evaluation during training",
    "stats/*": (
        "shares of the time of a kind of process, 0 to 1: `wait` for others, `step` of envs or of the "
        "network, and others"
    ),
    "stats/memory_*, stats/master_process_memory_mb": "memory of a process (MB)",
    "stats/policy_worker_avg_batch_size": "observations that are answered together: mean",
    "health/*": "how often a fault was handled in this run; sf_log.txt has the reasons",
    "zz_pbt/*": "settings of the policy that population-based training changes",
    "zz_selfplay/*": "Elo rating and win rates against past selves",
}


def legend_text() -> str:
    """Returns a Markdown table that explains all TensorBoard tags."""
    rows = [
        f"| {', '.join(f'`{tag}`' for tag in tags.split(', '))} | {text} |" for tags, text in LEGEND.items()
    ]
    return "\n".join(["| tag | meaning |", "|---|---|", *rows])


def first_page() -> bytes:
    """Returns the layout of the first page of charts, serialised for TensorBoard's plugin for custom
    scalars."""
    from tensorboard.plugins.custom_scalar.layout_pb2 import Category, Chart, Layout, MultilineChartContent

    charts = [Chart(title=title, multiline=MultilineChartContent(tag=tags)) for title, tags in CHARTS.items()]
    layout: bytes = Layout(category=[Category(title=FIRST_PAGE, chart=charts)]).SerializeToString()
    return layout
