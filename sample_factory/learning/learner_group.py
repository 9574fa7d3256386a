"""Several learners of one policy: each trains on a share of every batch, and all have the same weights."""

import contextlib
import datetime
import hmac
import os
import pickle
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from sample_factory.exchange.messages import JoinGroup
from sample_factory.runtime.failures import PeerLost

LOOPBACK = "127.0.0.1"
KEY_BYTES = 32  # of SHA-256
# Seconds that a learner waits for the others. A learner that hangs is found by its missing heartbeats.
WAIT_SECONDS = 3600.0


class LearnerLost(PeerLost):
    """Raised when another learner of the same policy has ended or cannot be reached."""


class LearnerGroup:
    """Connects N learners of a policy so that together they compute what one learner would compute from the
    whole batch.

    Every learner must call the same methods in the same order; each call waits for all learners. A group of
    one learner, the default, uses no connection.

    rank: index of this process, 0 to N - 1. The first learner, rank 0, sends orders to the others, publishes
        weights and saves checkpoints.
    """

    def __init__(self, rank: int = 0, size: int = 1):
        self.rank = rank
        self.size = size
        self._key = b""
        self._store: Any = None  # in the first learner, to which the others connect

    def listen(self) -> JoinGroup:
        """In the first learner: opens a port for the other learners. Returns the message that they need to
        connect: the port, and the secret key that signs orders."""
        self._store = TCPStore(LOOPBACK, 0, self.size, is_master=True, wait_for_workers=False)
        return JoinGroup(self._store.port, secrets.token_bytes(KEY_BYTES))

    def connect(self, device: torch.device, place: JoinGroup) -> None:
        """Connects the learners to each other; returns when all of them have called this method.

        device: holds the tensors that will be summed. place: returned by `listen` in the first learner.
        Raises LearnerLost if a learner cannot be reached.
        """
        self._key = place.key
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # otherwise the address of the host name is used
        backend = "gloo"
        if device.type == "cuda":
            backend = gpu_backend(self.size, torch.cuda.device_count())
            torch.cuda.set_device(device)
        timeout = datetime.timedelta(seconds=WAIT_SECONDS)
        with _connection_errors():
            store = self._store or TCPStore(LOOPBACK, place.port, self.size, is_master=False)
            dist.init_process_group(
                backend, store=store, rank=self.rank, world_size=self.size, timeout=timeout
            )

    def total(self, tensor: Tensor) -> Tensor:
        """Returns the sum of a tensor over all learners; the tensor itself in a group of one."""
        if self.size == 1:
            return tensor
        summed = tensor.detach().clone(memory_format=torch.contiguous_format)
        with _connection_errors():
            dist.all_reduce(summed)
        return summed

    def sum_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Replaces every gradient by its sum over all learners; a missing one counts as 0."""
        if self.size == 1:
            return
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        # One message instead of one for each parameter.
        summed = self.total(torch.cat([gradient.flatten() for gradient in gradients]))
        parts = torch.split(summed, [parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, parts):
            parameter.grad = part.view_as(parameter)

    def share(self, own: Tensor) -> "Share":
        """Counts the valid steps, where `own` (bool) is True, for this learner and for all learners."""
        count = own.sum()
        return Share(count, self.total(count))

    def give_order(self, order: "Order") -> None:
        """In the first learner: sends an order to all other learners of the group."""
        if self.size > 1:
            data = pickle.dumps(order)
            message = self._digest(data) + data
            with _connection_errors():
                dist.broadcast(torch.tensor(len(message)), src=0)
                dist.broadcast(torch.frombuffer(bytearray(message), dtype=torch.uint8), src=0)

    def receive_order(self) -> "Order":
        """In the other learners: waits for the next order from the first learner. Raises LearnerLost if the
        signature is wrong, so that another process must have sent the order."""
        size = torch.tensor(0)
        with _connection_errors():
            dist.broadcast(size, src=0)
            message = torch.zeros(int(size), dtype=torch.uint8)
            dist.broadcast(message, src=0)
        received = message.numpy().tobytes()
        digest, data = received[:KEY_BYTES], received[KEY_BYTES:]
        if not hmac.compare_digest(digest, self._digest(data)):
            raise LearnerLost("an order does not come from the first learner")
        order: Order = pickle.loads(data)
        return order

    def _digest(self, data: bytes) -> bytes:
        """Returns a signature of `data`, KEY_BYTES long, that only learners of this group can compute."""
        return hmac.digest(self._key, data, "sha256")


def gpu_backend(num_learners: int, num_gpus: int) -> str:
    """Returns the backend of torch.distributed: NCCL if each learner has a GPU to itself, otherwise Gloo.

    NCCL refuses two ranks on one GPU ("Duplicate GPU detected"), or hangs. Gloo sums through host memory.
    """
    return "cpu:gloo,cuda:nccl" if num_learners <= num_gpus else "cpu:gloo,cuda:gloo"


class Order(NamedTuple):
    """Message from the first learner to the others: what all learners of the policy do next.

    state: `Learner.shared_state` that the others load first; None if they already have the same state.
    """

    trains: bool  # on a batch
    ends: bool = False
    state: Mapping[str, Any] | None = None


class Share(NamedTuple):
    """Numbers of valid steps in a minibatch, in this learner's share and over all learners; int64 scalars."""

    of_this: Tensor
    of_all: Tensor

    def weighted(self, mean: Tensor) -> Tensor:
        """Scales this learner's mean so that the sum over all learners is the mean over all steps."""
        return mean * (self.of_this / self.of_all.clamp(min=1))


@contextlib.contextmanager
def _connection_errors() -> Iterator[None]:
    """Converts the RuntimeError by which torch.distributed reports a lost connection to LearnerLost."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise LearnerLost(f"lost the connection to another learner of this policy: {reason}") from error
