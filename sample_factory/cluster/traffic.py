"""What nodes and the learner's machine exchange: trajectories as compressed bytes, weights when they are due
(--weights_sync); and counts of both for summaries."""

import time
from collections import Counter
from typing import NamedTuple

import numpy as np
import zstandard

from sample_factory.config.sampling_flags import DIVERGENCE, LAG, ClusterFlags
from sample_factory.exchange.messages import StatsReport
from sample_factory.exchange.policy_weights import Stamp
from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers

MB = 1e6
# Of zstd, which makes trajectories of doom_basic 3.5 times smaller (LZ4: 1.9), of doom_battle 5.8 (3.6).
LEVEL = 1
THREADS = 4  # to pack on each node, and to unpack on the learner's machine


class Packed(NamedTuple):
    """Trajectories of one policy, to be sent to the learner's machine.
    data: [k] uint8, the compressed arrays in the order of `_arrays`."""

    policy_id: int
    num_trajectories: int
    data: np.ndarray


def _arrays(buffers: TrajectoryBuffers, policy_id: int) -> list[np.ndarray]:
    """Returns views of the arrays, [N buffers, ...], that make up a policy's trajectories for training."""
    storage = buffers.storage_of_policy(policy_id)
    return [
        *(storage.obs[key] for key in sorted(storage.obs)),
        storage.outputs,
        buffers.versions,
        buffers.generations,
        buffers.rewards,
        buffers.costs,
        buffers.terminated,
        buffers.truncated,
        buffers.policy_ids,
        buffers.active_at_end,
        buffers.chunk_rnn_states,
    ]


def pack(buffers: TrajectoryBuffers, policy_id: int, buffer_indices: np.ndarray) -> Packed:
    """Compresses the trajectories in some buffers into one array. buffer_indices: [n] int64."""
    arrays = _arrays(buffers, policy_id)
    count = len(buffer_indices)
    raw = np.empty(sum(count * array[0].nbytes for array in arrays), np.uint8)
    begin = 0
    for array in arrays:
        end = begin + count * array[0].nbytes
        into = raw[begin:end].view(array.dtype).reshape(count, *array.shape[1:])
        np.take(array, buffer_indices, axis=0, out=into, mode="clip")  # other modes copy once more
        begin = end
    compressed = zstandard.ZstdCompressor(level=LEVEL).compress(raw.data)
    return Packed(policy_id, count, np.frombuffer(compressed, np.uint8))


def unpack(buffers: TrajectoryBuffers, packed: Packed, buffer_indices: np.ndarray) -> int:
    """Decompresses trajectories of a node into buffers. Returns their uncompressed size in bytes.

    buffer_indices: [n] int64, a buffer for each trajectory.
    Raises ValueError, before anything is written, if the arrays of the node have another size.
    """
    arrays = _arrays(buffers, packed.policy_id)
    size = packed.num_trajectories * sum(int(array[0].nbytes) for array in arrays)
    data = packed.data.tobytes()
    sent = zstandard.frame_content_size(data)
    if sent != size or len(buffer_indices) != packed.num_trajectories:
        raise ValueError(
            f"a node has sent {packed.num_trajectories} trajectories of {sent:,} bytes for "
            f"{len(buffer_indices)} buffers; here they have {size:,} bytes: does it run another version?"
        )
    raw = zstandard.ZstdDecompressor().decompress(data)
    begin = 0
    for array in arrays:
        shape = (packed.num_trajectories, *array.shape[1:])
        values = np.frombuffer(raw, array.dtype, int(np.prod(shape)), begin).reshape(shape)
        array[buffer_indices] = values
        begin += values.nbytes
    return size


def are_weights_due(
    flags: ClusterFlags, max_policy_lag: int, held: Stamp | None, newest: Stamp, diverged: int
) -> bool:
    """Decides by --weights_sync whether to send the newest weights of a policy to a node now.

    max_policy_lag: lag in SGD steps beyond which samples are not trained on.
    held: stamp of the weights with which the node acts; None if it has received none.
    newest: stamp of the learner's weights.
    diverged: newest version whose actions differ too much from the learner's policy, see `newest_diverged` in
        learning/learner.py.
    """
    if held is None or held.generation != newest.generation:
        return True
    lag = newest.version - held.version
    max_lag = max_policy_lag // 2
    if flags.weights_sync == LAG:
        return lag > min(flags.threshold or 0.0, max_lag)
    if flags.weights_sync == DIVERGENCE:
        return lag > 0 and (diverged >= held.version or lag > max_lag)
    return lag != 0


class Traffic:
    """Counts trajectories received from nodes and weights sent to them, for summaries."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._received: Counter[str] = Counter()  # since the last report
        self._lags: list[int] = []  # since the last report
        self._weights: Counter[str] = Counter()  # since the start of the run

    def received(self, packed: Packed, raw_bytes: int) -> None:
        """Counts received trajectories. raw_bytes: their size after unpacking."""
        self._received["trajectories"] += packed.num_trajectories
        self._received["bytes"] += packed.data.nbytes
        self._received["raw_bytes"] += raw_bytes

    def offered(self, num_bytes: int, newest: Stamp, held: Stamp | None, is_sent: bool) -> None:
        """Counts a decision whether to send new weights to a node.

        num_bytes: size of the weights. newest: their stamp. held: stamp of the weights that the node has.
        is_sent: whether the new weights are sent.
        """
        if held is not None:
            self._lags.append(newest.version - held.version)
        self._weights["fetches" if is_sent else "fetches_saved"] += 1
        self._weights["fetched_bytes" if is_sent else "saved_bytes"] += num_bytes

    def take_report(self) -> StatsReport:
        """Returns rates and lags since the last call, and counts of weights since the start of the run."""
        seconds = time.monotonic() - self._since
        received = self._received
        stats = {
            "trajectories_per_second": received["trajectories"] / seconds,
            "mb_per_second": received["bytes"] / MB / seconds,
            "weights_fetches": float(self._weights["fetches"]),
            "weights_fetched_mb": self._weights["fetched_bytes"] / MB,
            "weights_fetches_saved": float(self._weights["fetches_saved"]),
            "weights_saved_mb": self._weights["saved_bytes"] / MB,
        }
        if received["bytes"]:
            stats["compression"] = received["raw_bytes"] / received["bytes"]
        if self._lags:
            stats["weights_lag"] = sum(self._lags) / len(self._lags)
            stats["weights_lag_max"] = float(max(self._lags))
        self._since = time.monotonic()
        self._received = Counter()
        self._lags = []
        return StatsReport("nodes", 0, stats)
