"""Trajectories as compressed bytes: what travels from a node to the learner's machine."""

from typing import NamedTuple

import numpy as np
import zstandard

from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers

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
