"""Tests of copies to and from a device: on a CPU, and on a GPU if there is one."""

import numpy as np
import pytest
import torch

from sample_factory.runtime.gpu_work import Downloads, Uploads, host_array
from tests.gpu.devices import DEVICES


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.int32, np.float32])
@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (4, 0)])
def test_memory_for_copies_has_the_requested_shape_and_dtype_and_can_be_written(device, dtype, shape):
    array = host_array(shape, np.dtype(dtype), torch.device(device))
    array[...] = 1
    assert array.shape == shape and array.dtype == dtype and (array == 1).all()
    assert torch.from_numpy(array).is_pinned() == (device == "cuda" and array.size > 0)


@pytest.mark.parametrize("device", DEVICES)
def test_uploads_are_complete_when_the_call_returns_even_if_the_array_changes_afterwards(device):
    upload = Uploads(torch.device(device))
    for number in range(5):
        # On a GPU, large enough that the copy takes a while.
        arrays = {
            "plain": np.arange(12).reshape(3, 4)[:, ::2],
            "pinned": host_array(
                (64, 10**6 if device == "cuda" else 10), np.dtype(np.float32), torch.device(device)
            ),
        }
        arrays["pinned"][...] = number
        tensors = upload(arrays)
        assert all(tensor.device.type == device for tensor in tensors.values())
        if device == "cuda":
            arrays["pinned"][...] = -1
        assert (tensors["pinned"] == number).all()
        assert tensors["plain"].tolist() == [[0, 2], [4, 6], [8, 10]]


@pytest.mark.parametrize("device", DEVICES)
def test_downloads_are_contiguous_in_order_and_follow_the_tensors(device):
    download = Downloads(torch.device(device))
    weight = torch.nn.Parameter(torch.arange(6.0, device=device).view(2, 3).t())
    state = {"weight": weight, "count": torch.ones((), dtype=torch.float64, device=device)}
    for number in range(3):
        arrays = download(state)
        assert list(arrays) == ["weight", "count"] and arrays["weight"].flags.c_contiguous
        np.testing.assert_array_equal(
            arrays["weight"], [[number, number + 3], [number + 1, number + 4], [number + 2, number + 5]]
        )
        assert arrays["count"].dtype == np.float64 and arrays["count"] == 1 + number
        with torch.no_grad():
            weight += 1
            state["count"] += 1
