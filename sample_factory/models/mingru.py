"""A minimal GRU, whose gates depend on the inputs only: a trajectory is one matrix product and a scan."""

import numpy as np
import torch
from torch import Tensor, nn

from sample_factory.config.sections import ModelFlags
from sample_factory.models.cores import Core, keep_mask
from sample_factory.models.cpu_layers import Linear
from sample_factory.models.network_registry import CORES

# At the start, the units of a layer forget within these numbers of steps, from the first unit to the last.
SHORTEST = 2.0
LONGEST = 128.0


class MinGRU(Core):
    """minGRU of any depth (Feng et al. 2024, "Were RNNs all we needed?", section 3.1).

        h_t = (1 - z_t) * h_{t-1} + z_t * c_t;  z_t = sigmoid(W_z x_t + b_z), c_t = W_c x_t + b_c

    A row of rnn_state holds h of all layers, one after another. The biases b_z start so that the units of a
    layer forget at different speeds (as in Tallec and Ollivier 2018, "Can recurrent neural networks warp
    time?"); with b_z near 0, all units would forget within two steps, and learn to remember only slowly.
    """

    def __init__(self, flags: ModelFlags, in_size: int):
        super().__init__()
        size = flags.hidden_size
        widths = [in_size] + [size] * (flags.rnn_num_layers - 1)
        self.layers = nn.ModuleList(_gate_and_candidate(width, size) for width in widths)
        self.out_size = size
        self.state_size = CORES["mingru"].state_size(flags)

    def forward(
        self, x: Tensor, rnn_state: Tensor, resets: np.ndarray | None = None
    ) -> tuple[Tensor, Tensor]:
        keep = keep_mask(resets, x.device)
        last = []
        for layer, state in zip(self.layers, rnn_state.split(self.out_size, dim=-1)):
            gate, candidate = layer(x).float().chunk(2, dim=-1)
            update = torch.sigmoid(gate)
            decay = 1 - update
            x = linear_scan(decay if keep is None else decay * keep, update * candidate, state)
            last.append(x[-1])
        return x, torch.cat(last, dim=-1)

    def prepare_to_act(self, dtype: torch.dtype) -> None:
        """Converts the weights to `dtype`, to which autocast would round them anyway."""
        self.layers.to(dtype)


def _gate_and_candidate(in_size: int, size: int) -> Linear:
    """Makes the linear layer [in_size] to [2 * size], gate and candidate, and sets the gates' biases."""
    layer = Linear(in_size, 2 * size)
    steps = torch.logspace(np.log2(SHORTEST), np.log2(LONGEST), size, base=2.0)
    with torch.no_grad():
        nn.init.zeros_(layer.bias)
        layer.bias[:size] = -torch.log(steps - 1)  # its sigmoid is 1 / steps
    return layer


def scan_by_steps(decays: Tensor, inputs: Tensor, first: Tensor) -> Tensor:
    """Returns h [T, B, H] with h_t = decays_t * h_{t-1} + inputs_t and h_{-1} = first [B, H], in T steps."""
    outputs = []
    state = first
    for decay, added in zip(decays, inputs):
        state = torch.addcmul(added, decay, state)
        outputs.append(state)
    return torch.stack(outputs)


def scan_by_doubling(decays: Tensor, inputs: Tensor, first: Tensor) -> Tensor:
    """Returns the same as `scan_by_steps`, in about 3 log2(T) large operations (Hillis and Steele 1986).

    After round i, row t holds the combined decay and input of the last 2^i steps up to t. Feng et al. use
    sums of logarithms instead, which is not possible with the decay of 0 at a reset, and which loses digits
    over many steps, so that acting and learning would not agree.
    """
    inputs = torch.cat([torch.addcmul(inputs[:1], decays[:1], first), inputs[1:]])
    reach = 1
    while reach < inputs.shape[0]:
        joined = torch.addcmul(inputs[reach:], decays[reach:], inputs[:-reach])
        inputs = torch.cat([inputs[:reach], joined])
        decays = torch.cat([decays[:reach], decays[reach:] * decays[:-reach]])
        reach *= 2
    return inputs


def linear_scan(decays: Tensor, inputs: Tensor, first: Tensor) -> Tensor:
    """Returns h [T, B, H] with h_t = decays_t * h_{t-1} + inputs_t and h_{-1} = first, differentiable.

    decays, inputs: [T, B, H] float32. first: [B, H] float32. A decay of 0 forgets exactly.
    """
    return (scan_by_steps if inputs.is_cpu else scan_by_doubling)(decays, inputs, first)
