"""Sizes of a policy's rows in shared memory, known without building a network (and without torch)."""

from sample_factory.config.sections import ModelFlags


def state_size(flags: ModelFlags) -> int:
    """Floats in the recurrent state of one agent; 0 without an RNN."""
    if not flags.use_rnn:
        return 0
    towers = 1 if flags.actor_critic_share_weights else 2
    parts = 2 if flags.rnn_type == "lstm" else 1  # LSTM: hidden and cell
    return flags.hidden_size * flags.rnn_num_layers * parts * towers
