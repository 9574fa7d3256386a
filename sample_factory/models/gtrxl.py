"""GTrXL: a transformer over the last steps of an episode, with gates instead of residual connections."""

import math
from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from sample_factory.config.sections import ModelFlags
from sample_factory.models.cores import Core
from sample_factory.models.network_registry import CORES

# At the start a gate keeps most of its block's input: 1 - sigmoid(-2) = 0.88.
GATE_BIAS = 2.0


class GTrXL(Core):
    """Gated Transformer-XL (Parisotto et al. 2019, "Stabilizing Transformers for Reinforcement Learning").

    In each layer, a step attends to itself and to those of the M steps before it (--gtrxl_memory) that belong
    to its episode, both when acting and when learning. Gradients reach back to the start of a chunk; earlier
    steps are read from the recurrent state.

    A row of rnn_state holds the number of remembered steps, at most M; then, for each layer, its normalised
    inputs of the last M steps, [M, D], the oldest first. All zeros: nothing is remembered.
    """

    def __init__(self, flags: ModelFlags, in_size: int):
        super().__init__()
        size = flags.hidden_size
        self.memory = flags.gtrxl_memory
        self.embedding = nn.Linear(in_size, size)
        self.layers = nn.ModuleList(
            _Layer(size, flags.gtrxl_heads, self.memory) for _ in range(flags.rnn_num_layers)
        )
        self.out_size = size
        self.state_size = CORES["gtrxl"].state_size(flags)

    def forward(
        self, x: Tensor, rnn_state: Tensor, resets: np.ndarray | None = None
    ) -> tuple[Tensor, Tensor]:
        """Runs T steps for B rows, with the arguments and results of `Core.forward`. Computes in float32,
        also under autocast."""
        since_reset = None if resets is None or not resets.any() else _steps_since(resets)
        with torch.autocast(x.device.type, enabled=False):
            return self._run(x.float(), rnn_state, since_reset)

    def _run(self, x: Tensor, rnn_state: Tensor, since_reset: np.ndarray | None) -> tuple[Tensor, Tensor]:
        """Returns outputs [T, B, D] and the next rnn_state, for x [T, B, in_size]. since_reset: result of
        `_steps_since`; None without resets."""
        num_steps = x.shape[0]
        ages = self._ages(rnn_state[:, 0], num_steps, since_reset)
        kept = self._kept(since_reset, x.device)
        memories = rnn_state[:, 1:].unflatten(1, (len(self.layers), self.memory, self.out_size)).unbind(1)
        embeddings = self.embedding(x).transpose(0, 1)  # [B, T, D]
        parts = [(ages[:, -1:] + 1).clamp(max=self.memory)]
        for layer, memory in zip(cast(Sequence[_Layer], self.layers), memories):
            embeddings, context = layer(embeddings, memory, ages)
            last = context[:, num_steps:]
            parts.append((last if kept is None else last * kept).flatten(1))
        return embeddings.transpose(0, 1), torch.cat(parts, dim=1)

    def _ages(self, remembered: Tensor, num_steps: int, since_reset: np.ndarray | None) -> Tensor:
        """Returns the number of earlier steps that each step may attend to, [B, T] float32, at most M.

        remembered: [B], number of steps that are remembered from before the first step. since_reset: result
        of `_steps_since`; None without resets.
        """
        ages = remembered.clamp(min=0).unsqueeze(1) + torch.arange(num_steps, device=remembered.device)
        if since_reset is not None:
            ages = torch.minimum(ages, torch.from_numpy(since_reset.T).to(ages))
        return ages.clamp(max=self.memory)

    def _kept(self, since_reset: np.ndarray | None, device: torch.device) -> Tensor | None:
        """Returns a mask of the last M steps, [B, M, 1] float32: 1 for steps since the last reset, which are
        remembered, else 0. Returns None if all are remembered. since_reset: as for `_ages`."""
        if since_reset is None:
            return None
        steps_ago = np.arange(self.memory, 0, -1) - 1
        kept = steps_ago <= since_reset[-1][:, None]
        return torch.from_numpy(kept).to(device, torch.float32).unsqueeze(-1)


def _steps_since(resets: np.ndarray) -> np.ndarray:
    """Returns the number of steps since the last reset, [T, B] float32: 0 at a reset, inf before the first.

    resets: [T, B] bool.
    """
    steps = np.arange(len(resets), dtype=np.float32)[:, None]
    last_reset = np.maximum.accumulate(np.where(resets, steps, np.float32(-np.inf)), axis=0)
    since_reset: np.ndarray = steps - last_reset
    return since_reset


class _Layer(nn.Module):
    """One layer: an attention block, then an MLP block. Each block normalises its input, and a gate combines
    the input and the output of the block."""

    def __init__(self, size: int, heads: int, memory: int):
        super().__init__()
        self.attention = _WindowAttention(size, heads, memory)
        self.attention_gate = _Gate(size)
        self.mlp = nn.Sequential(
            nn.LayerNorm(size), nn.Linear(size, size), nn.ReLU(), nn.Linear(size, size), nn.ReLU()
        )
        self.mlp_gate = _Gate(size)

    def forward(self, x: Tensor, memory: Tensor, ages: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the outputs, [B, T, D], and the concatenation of memory and normalised inputs, [B, M + T,
        D], whose end is the next memory.

        x: [B, T, D]. memory: [B, M, D], normalised inputs of the M steps before. ages: [B, T] float32, number
        of earlier steps that each step may attend to.
        """
        # Without weights: they would only scale the weights of the attention.
        normalised = nn.functional.layer_norm(x, x.shape[-1:])
        context = torch.cat([memory, normalised], dim=1)
        x = self.attention_gate(x, torch.relu(self.attention(normalised, context, ages)))
        return self.mlp_gate(x, self.mlp(x)), context


class _Gate(nn.Module):
    """Combines input and output of a block by GTrXL's GRU-type gate (Parisotto et al. 2019, equation 9)."""

    def __init__(self, size: int):
        super().__init__()
        self.from_output = nn.Linear(size, 3 * size, bias=False)
        self.from_input = nn.Linear(size, 2 * size, bias=False)
        self.from_chosen = nn.Linear(size, size, bias=False)
        self.bias = nn.Parameter(torch.full((size,), GATE_BIAS))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Maps the input x and the output y of a block, [..., D], to [..., D]."""
        reset_y, update_y, candidate_y = self.from_output(y).chunk(3, dim=-1)
        reset_x, update_x = self.from_input(x).chunk(2, dim=-1)
        reset = torch.sigmoid(reset_y + reset_x)
        update = torch.sigmoid(update_y + update_x - self.bias)
        candidate = torch.tanh(candidate_y + self.from_chosen(reset * x))
        return torch.lerp(x, candidate, update)


class _WindowAttention(nn.Module):
    """Multi-head attention of each step to a window of the steps before it, with the relative positions of
    Dai et al. 2019, "Transformer-XL", section 3.3.

    Keys and values are not computed: the query is multiplied by the key matrix, and the weighted sum of the
    context by the value matrix. So acting multiplies by two D x D matrices once per step, instead of once for
    every step of the window.
    """

    table: Tensor

    def __init__(self, size: int, heads: int, memory: int):
        super().__init__()
        self.memory = memory
        width = size // heads
        self.query = nn.Linear(size, size, bias=False)
        self.key = _matrices(heads, width, size)
        self.value = _matrices(heads, width, size)
        self.position = _matrices(heads, width, size)
        self.content_bias = nn.Parameter(torch.zeros(heads, width))
        self.position_bias = nn.Parameter(torch.zeros(heads, width))
        self.out = nn.Linear(size, size)
        self.register_buffer("table", _sinusoids(memory, size), persistent=False)

    def forward(self, x: Tensor, context: Tensor, ages: Tensor) -> Tensor:
        """Returns the output of the attention, [B, T, D].

        x: [B, T, D], the last T rows of context [B, M + T, D]. ages: [B, T], how many of the M rows before a
        step it may attend to.
        """
        heads, width, _ = self.key.shape
        query = self.query(x).unflatten(-1, (heads, width)) / math.sqrt(width)  # [B, T, heads, width]
        by_content = torch.einsum("bthw,hwd->bhtd", query + self.content_bias, self.key)
        scores = torch.einsum("bhtd,bnd->bhtn", by_content, context)  # [B, heads, T, M + T]
        positions = torch.einsum("hwd,md->hwm", self.position, self.table)
        by_position = torch.einsum("bthw,hwm->bhtm", query + self.position_bias, positions)
        distances = torch.arange(self.memory, -1, -1, device=x.device)  # from a step to each column
        too_old = distances > ages.unsqueeze(-1)  # [B, T, M + 1]
        by_position = by_position.masked_fill(too_old.unsqueeze(1), -math.inf)
        weights = torch.softmax(scores + shifted(by_position), dim=-1)
        read = torch.einsum("bhtn,bnd->bhtd", weights, context)
        return cast(Tensor, self.out(torch.einsum("bhtd,hwd->bthw", read, self.value).flatten(2)))


def shifted(windows: Tensor) -> Tensor:
    """Converts scores over each step's window, [..., T, M + 1], to scores over all M + T steps, [..., T,
    M + T]: moves row t by t columns to the right, and fills up with -inf."""
    num_steps, width = windows.shape[-2:]
    padded = nn.functional.pad(windows, (0, num_steps), value=-math.inf).flatten(-2)
    # With rows that are one number shorter, each row starts one number earlier: it moves by one column more.
    total = width + num_steps - 1
    moved: Tensor = torch.unflatten(padded[..., : num_steps * total], -1, (num_steps, total))
    return moved


def _matrices(heads: int, width: int, size: int) -> nn.Parameter:
    """Returns one matrix per head, [heads, width, size], initialised as in nn.Linear."""
    bound = 1 / math.sqrt(size)
    return nn.Parameter(torch.empty(heads, width, size).uniform_(-bound, bound))


def _sinusoids(memory: int, size: int) -> Tensor:
    """Returns sinusoidal encodings of the distances into the past, from M steps down to 0, [M + 1, size]."""
    distances = torch.arange(memory, -1.0, -1.0).unsqueeze(1)
    frequencies = 10_000.0 ** (-torch.arange(0.0, size, 2.0) / size)
    angles = distances * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :size]
