"""The section of training: batches, losses, optimizer."""

import functools
from dataclasses import dataclass

from sample_factory.config.flags import Not, flag

# The network may have a recurrent state; a core or a network of the user's own is assumed to.
MEMORY = ({"use_rnn": (True,)}, {"core_custom": Not((None,))}, {"actor_critic_custom": Not((None,))})
VTRACE = ({"algo": ("APPO",), "with_vtrace": (True,)}, {"algo": ("IMPALA", "IMPACT")})
ADAPTIVE = ("kl_adaptive_minibatch", "kl_adaptive_epoch")
_impact_flag = functools.partial(flag, only_with={"algo": ("IMPACT",)})
_vtrace_flag = functools.partial(flag, only_with=VTRACE)
_cpc_flag = functools.partial(flag, only_with={"use_cpc": (True,)})
_adaptive_flag = functools.partial(flag, only_with={"lr_schedule": ADAPTIVE})
_adam_flag = functools.partial(flag, only_with={"optimizer": ("adam", "lamb")})
_rmsprop_flag = functools.partial(flag, only_with={"optimizer": ("rmsprop",)})


@dataclass(frozen=True)
class LearningFlags:
    """Batches, losses, optimizer."""

    rollout: int = flag(
        32,
        "number of steps in a trajectory, the unit in which experience is collected",
        between=(1, 1_000_000),
    )
    recurrence: int = flag(
        -1,
        "number of steps of backpropagation through time with an RNN, a divisor of --rollout; -1: the "
        "whole trajectory",
        at_least=-1,
        only_with=MEMORY,
    )
    batch_size: int = flag(
        1024, "number of samples in one SGD step, a multiple of --rollout", between=(1, 100_000_000)
    )
    num_batches_per_iteration: int = flag(
        1,
        "number of minibatches that are collected for one iteration of training",
        aliases=("num_batches_per_epoch",),
        between=(1, 100_000),
    )
    ppo_epochs: int = flag(
        1,
        "number of passes over the samples of an iteration of training",
        aliases=("num_epochs",),
        between=(1, 10_000),
    )
    shuffle_minibatches: bool = flag(
        True,
        "draw new minibatches in each pass over the samples of an iteration of training",
        only_with={"num_batches_per_iteration": Not((1,))},
    )

    gamma: float = flag(0.99, "discount factor", between=(0, 1))
    reward_scale: float = flag(1.0, "factor by which rewards are multiplied")
    reward_clip: float = flag(
        1000.0, "rewards are clipped to plus or minus this value, after --reward_scale", above=0
    )
    shared_reward: float = flag(
        0.0,
        "share of the team's mean in the rewards that an agent learns from, before --reward_scale; 0: its "
        "own only, 1: the mean of the agents that act; reported rewards and objectives stay each agent's own",
        between=(0, 1),
    )
    gae_lambda: float = flag(
        0.95,
        "lambda of generalised advantage estimation (GAE), used by VMPO and with --with_vtrace=False",
        between=(0, 1),
        only_with=({"algo": ("APPO",), "with_vtrace": (False,)}, {"algo": ("VMPO",)}),
    )
    with_vtrace: bool = flag(
        True,
        "correct for experience of older policies by V-trace; False: generalised advantage estimation (GAE)",
        only_with={"algo": ("APPO",)},
    )
    vtrace_rho: float = _vtrace_flag(1.0, "upper limit of the importance ratio (rho) in V-trace", at_least=0)
    vtrace_c: float = _vtrace_flag(1.0, "upper limit of the trace coefficient (c) in V-trace", at_least=0)
    vtrace_lambda: float = _vtrace_flag(
        1.0,
        "factor of the trace coefficient (lambda) in V-trace: less than 1 looks less far ahead, with less "
        "noise",
        between=(0, 1),
    )
    value_bootstrap: bool = flag(
        True,
        "where a time limit cuts an episode off, bootstrap from the value of the state before its last "
        "action; False: treat that as a terminal state",
    )
    normalize_returns: bool = flag(
        True, "the critic predicts returns normalised by their running mean and standard deviation"
    )
    ppo_clip_ratio: float = flag(
        0.1,
        "clip range e of PPO: the ratio of probabilities is clipped to [1/(1+e), 1+e]",
        above=0,
        only_with={"algo": ("APPO", "IMPACT")},
    )
    ppo_clip_value: float = flag(
        1.0,
        "largest change of a value prediction in the clipped value loss",
        above=0,
        only_with={"algo": ("APPO",)},
    )
    # Luo et al. 2020 have N = 4 and K = 2 for discrete actions, 16 and 20 (HalfCheetah: 32) for continuous
    # ones; rho is 2 (RLlib, rllib/algorithms/appo/appo.py and rllib/tuned_examples/appo/halfcheetah_appo.py).
    impact_buffer_batches: int = _impact_flag(
        4,
        "IMPACT: number of batches in the circular buffer (N), which the learner's device has to hold",
        between=(1, 10_000),
    )
    impact_uses: int = _impact_flag(
        2,
        "IMPACT: number of times that each batch is trained on (K), spread over --impact_buffer_batches",
        between=(1, 1000),
    )
    impact_target_period: int = _impact_flag(
        0,
        "IMPACT: number of SGD steps between updates of the target network; 0: those of N * K batches",
        between=(0, 1_000_000),
    )
    impact_rho: float = _impact_flag(
        2.0, "IMPACT: upper limit of the ratio between the policy that acted and the target network", above=0
    )
    # Song et al. 2020, for continuous actions (Gym): T_target 100, epsilon_eta 0.01, limits that are drawn
    # from [0.005, 0.01] for the mean and [5e-6, 5e-5] for the covariance, of which these are the upper ends.
    # For discrete actions, public implementations have an epsilon_eta of 0.01 (rlpyt) or 0.02 (JORLDY) and an
    # epsilon_alpha of 0.01 (rlpyt) or 0.1 (JORLDY).
    vmpo_target_period: int = flag(
        10,
        "VMPO: number of SGD steps between updates of the target network",
        between=(1, 1_000_000),
        only_with={"algo": ("VMPO",)},
    )
    vmpo_temperature_kl: float = flag(
        0.02,
        "VMPO: KL divergence (epsilon_eta) that the temperature aims at, of the samples' weights from equal "
        "weights",
        above=0,
        only_with={"algo": ("VMPO",)},
    )
    vmpo_policy_kl: float = flag(
        0.01,
        "VMPO: limit of the KL divergence between target network and policy, for discrete actions "
        "(epsilon_alpha)",
        above=0,
        only_with={"algo": ("VMPO",), "actions": ("discrete",)},
    )
    vmpo_mean_kl: float = flag(
        0.01,
        "VMPO: limit of that divergence by the means of continuous actions (epsilon_alpha_mu)",
        above=0,
        only_with={"algo": ("VMPO",), "actions": ("continuous",)},
    )
    vmpo_covariance_kl: float = flag(
        5e-5,
        "VMPO: limit of that divergence by their covariance (epsilon_alpha_Sigma)",
        above=0,
        only_with={"algo": ("VMPO",), "actions": ("continuous",)},
    )
    exploration_loss: str = flag(
        "entropy",
        "what makes the policy explore: an entropy bonus, or the symmetric KL divergence to the "
        "uniform distribution as a loss",
        choices=("entropy", "symmetric_kl"),
        only_with={"exploration_loss_coeff": Not((0,))},
    )
    exploration_loss_coeff: float = flag(
        0.003, "weight of the loss that makes the policy explore (entropy bonus); 0 turns it off", at_least=0
    )
    value_loss_coeff: float = flag(0.5, "weight of the value loss", at_least=0)
    kl_loss_coeff: float = flag(
        0.0,
        "weight of the KL divergence between the new policy and the one that acted; 0 turns it off",
        at_least=0,
    )

    use_cpc: bool = flag(
        False,
        "auxiliary task CPC|A: recognise later observations among others, from state and actions; "
        "helps where rewards are rare and memory matters",
    )
    cpc_forward_steps: int = _cpc_flag(
        8,
        "CPC|A: largest number of steps between an observation and its prediction, at most --rollout",
        at_least=1,
    )
    cpc_time_subsample: int = _cpc_flag(
        6,
        "CPC|A: number of steps of each trajectory from which later observations are predicted",
        between=(1, 1_000_000),
    )
    cpc_forward_subsample: int = _cpc_flag(
        2,
        "CPC|A: number of later observations that are predicted from each of the chosen steps",
        between=(1, 1_000_000),
    )

    optimizer: str = flag(
        "adam",
        "optimizer; lamb is for very large batches, rmsprop is that of IMPALA",
        choices=("adam", "lamb", "rmsprop"),
    )
    learning_rate: float = flag(
        1e-4, "step size of the optimizer at the start of training", above=0, at_most=1
    )
    lr_schedule: str = flag(
        "constant",
        "how the learning rate changes: constant; kl_adaptive: up and down, so that the policy changes at an "
        "even pace; linear_decay: down to 0 at the end",
        choices=("constant", "kl_adaptive_minibatch", "kl_adaptive_epoch", "linear_decay"),
    )
    lr_schedule_kl_threshold: float = _adaptive_flag(
        0.008,
        "KL divergence per SGD step that the kl_adaptive schedules of the learning rate aim at",
        above=0,
    )
    lr_adaptive_min: float = _adaptive_flag(
        1e-6, "smallest learning rate of the kl_adaptive schedules", above=0, at_most=1
    )
    lr_adaptive_max: float = _adaptive_flag(
        1e-2, "largest learning rate of the kl_adaptive schedules", above=0, at_most=1
    )
    adam_eps: float = _adam_flag(1e-6, "epsilon of Adam", above=0, at_most=1)
    adam_beta1: float = _adam_flag(0.9, "beta1 of Adam", at_least=0, at_most=0.999999)
    adam_beta2: float = _adam_flag(0.999, "beta2 of Adam", at_least=0, at_most=0.999999)
    rmsprop_alpha: float = _rmsprop_flag(
        0.99, "decay of the mean of squared gradients in RMSprop", at_least=0, at_most=0.999999
    )
    rmsprop_eps: float = _rmsprop_flag(0.01, "epsilon of RMSprop", above=0, at_most=1)
    max_grad_norm: float = flag(
        4.0, "the norm of the gradients is clipped to this; 0 turns it off", at_least=0
    )
