"""The recurrent network between the encoder and the decoder, or none."""

import numpy as np
import torch
from torch import Tensor, nn

from sample_factory.config.sections import ModelFlags
from sample_factory.models.custom_parts import int_attribute, make_custom_part, out_size
from sample_factory.models.gru import GRU
from sample_factory.models.network_registry import CORE, CORES
from sample_factory.models.normalizers import autocast_dtype
from sample_factory.runtime.registry import import_attribute


class Core(nn.Module):
    """Base class of the networks between encoder and decoder; a subclass implements each --rnn_type.

    out_size: width of the output. state_size: number of floats in a row of rnn_state.
    """

    out_size: int
    state_size: int

    def forward(
        self, x: Tensor, rnn_state: Tensor, resets: np.ndarray | None = None
    ) -> tuple[Tensor, Tensor]:
        """Runs T steps for B rows; to be defined by subclasses.

        Returns outputs [T, B, out_size] and the rnn_state after the last step, both float32.

        x: [T, B, in_size]. rnn_state: [B, state_size] float32, before the first step.
        resets: bool [T, B] in host memory, or None: where True, the row's state is zeroed before that step.
        """
        raise NotImplementedError

    def prepare_to_act(self, dtype: torch.dtype) -> None:
        """Prepares a core that will only act, under autocast to `dtype`; does nothing by default.

        A subclass may convert weights to `dtype` here, which autocast would otherwise do in every call.
        """


def keep_mask(resets: np.ndarray | None, device: torch.device) -> Tensor | None:
    """Converts `resets`, [T, B] bool in host memory, to a factor by which recurrent states are multiplied,
    [T, B, 1] float32: 0 where `resets` is True, else 1. Returns None if there are no resets."""
    if resets is None or not resets.any():
        return None
    return torch.from_numpy(~resets).to(device, torch.float32, non_blocking=True).unsqueeze(-1)


class NoCore(Core):
    """A core without memory (--use_rnn=False), which returns its input."""

    def __init__(self, in_size: int):
        super().__init__()
        self.out_size = in_size
        self.state_size = 0

    def forward(
        self, x: Tensor, rnn_state: Tensor, resets: np.ndarray | None = None
    ) -> tuple[Tensor, Tensor]:
        """Returns x [T, B, in_size] and rnn_state [B, 0] unchanged."""
        return x, rnn_state


class RecurrentCore(Core):
    """A GRU or LSTM with any number of layers. A row of rnn_state holds the hidden states of all layers, one
    after another; for an LSTM, h and then c of each layer."""

    def __init__(self, flags: ModelFlags, in_size: int):
        super().__init__()
        self.is_lstm = flags.rnn_type == "lstm"
        rnn_class = nn.LSTM if self.is_lstm else GRU
        self.rnn = rnn_class(in_size, flags.hidden_size, flags.rnn_num_layers)
        self.parts = 2 if self.is_lstm else 1
        self.out_size = flags.hidden_size
        self.state_size = CORES[flags.rnn_type].state_size(flags)

    def forward(
        self, x: Tensor, rnn_state: Tensor, resets: np.ndarray | None = None
    ) -> tuple[Tensor, Tensor]:
        shape = (self.rnn.num_layers, self.parts, self.out_size)
        hidden = torch.unflatten(rnn_state, -1, shape).permute(1, 2, 0, 3)  # [layers, parts, B, size]
        keep = keep_mask(resets, x.device)
        if isinstance(self.rnn, GRU) and x.is_cpu:
            outputs, last = self.rnn.unroll(x, hidden[:, 0], keep, autocast_dtype(x.device))
            hidden = last.unsqueeze(1)
        elif resets is None or keep is None:
            outputs, hidden = self._run(x, hidden)
        else:
            outputs, hidden = self._run_with_resets(x, hidden, resets, keep)
        return outputs, hidden.permute(2, 0, 1, 3).flatten(1)

    def prepare_to_act(self, dtype: torch.dtype) -> None:
        """Converts the weights of a GRU on a CPU to `dtype`, to which `GRU.unroll` would round them anyway.
        An LSTM, and any core on a GPU, keeps float32 weights, in which it computes."""
        if isinstance(self.rnn, GRU) and self.rnn.weight_ih_l0.is_cpu:
            self.rnn.to(dtype)

    def _run(self, x: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Runs torch's RNN in float32, without resets. Maps x [T, B, in_size] and hidden [layers, parts, B,
        size] to outputs [T, B, size] and the last hidden state.

        Autocast is switched off because an LSTM would keep its cell state in bfloat16 and lose increments
        below its resolution, and because cuDNN would compute in float16, whatever autocast's dtype is, where
        the gradients of means over thousands of samples vanish.
        """
        with torch.autocast(x.device.type, enabled=False):
            if not self.is_lstm:
                outputs, last = self.rnn(x.float(), hidden[:, 0].contiguous())
                return outputs, last.unsqueeze(1)
            outputs, parts = self.rnn(x.float(), tuple(part.contiguous() for part in hidden.unbind(1)))
        return outputs, torch.stack(parts, dim=1)

    def _run_with_resets(
        self, x: Tensor, hidden: Tensor, resets: np.ndarray, keep: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Does the same as `_run` for steps with resets, by one call per segment between two resets.

        resets: [T, B] bool. keep: from `keep_mask`. Measured (T 33, B 64, 640 to 512, one core, forward and
        backward): 186 ms without resets, 217 ms with one at every step; packed sequences take 260-290 ms.
        """
        starts = [0, *(1 + np.flatnonzero(resets[1:].any(axis=1))).tolist()]
        lengths = np.diff(starts, append=len(x)).tolist()
        outputs = []
        for start, steps in zip(starts, torch.split(x, lengths)):
            out, hidden = self._run(steps, hidden * keep[start])
            outputs.append(out)
        return torch.cat(outputs), hidden


class CustomCore(Core):
    """Wraps a user's core (--core_custom), whose `resets` argument is a tensor on the core's device.

    The core runs in float32: under autocast, a state in bfloat16 would lose increments below its resolution.
    """

    def __init__(self, core: nn.Module):
        """Wraps `core`. Raises NetworkError if the core lacks an int attribute out_size or state_size."""
        super().__init__()
        self.core = core
        self.out_size = out_size(core, CORE)
        self.state_size = int_attribute(core, "state_size", "the floats that an agent remembers", CORE)

    def forward(
        self, x: Tensor, rnn_state: Tensor, resets: np.ndarray | None = None
    ) -> tuple[Tensor, Tensor]:
        on_device = None
        if resets is not None and resets.any():
            on_device = torch.from_numpy(resets).to(x.device, non_blocking=True)
        with torch.autocast(x.device.type, enabled=False):
            returned = self.core(x.float(), rnn_state, on_device)
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise TypeError("it should return a tuple of outputs and rnn_state")
        outputs, rnn_state = returned
        return outputs.float(), rnn_state.float()


def make_core(flags: ModelFlags, in_size: int) -> Core:
    """Makes the core that the flags name. in_size: width of the encoder's output. Raises ConfigError if
    --core_custom names no registered core; NetworkError if the user's core cannot be made, or lacks an int
    attribute out_size or state_size."""
    if flags.core_custom is not None:
        return CustomCore(make_custom_part(CORE, flags.core_custom, flags, in_size))
    if not flags.use_rnn:
        return NoCore(in_size)
    core: Core = import_attribute(CORES[flags.rnn_type].factory)(flags, in_size)
    return core
