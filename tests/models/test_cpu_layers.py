"""Layers for the CPU compute what torch's plain ones do, always with the latest weights."""

import copy
import pickle

import pytest
import torch
from torch import nn

from sample_factory.models import cpu_layers
from sample_factory.models.cpu_layers import (
    MANY_PICTURES,
    Conv2d,
    Linear,
    PackedWeight,
    PatchConv2d,
    convolution_gradients,
    elu_,
    pixels_to_channels,
)

DTYPES = [
    torch.float32,
    pytest.param(
        torch.bfloat16,
        marks=pytest.mark.skipif(
            not cpu_layers._can_pack(torch.bfloat16), reason="this CPU cannot multiply in bfloat16"
        ),
    ),
]

LAYERS = {
    "linear": (lambda: Linear(24, 40), (24,)),
    "linear without bias": (lambda: Linear(24, 40, bias=False), (24,)),
    "convolution": (lambda: Conv2d(16, 32, 4, 2), (16, 17, 31)),
    "padded convolution": (lambda: Conv2d(16, 16, 3, padding=1), (16, 9, 8)),
    "convolution over squares": (lambda: PatchConv2d(3, 32, 8, 4), (3, 36, 64)),
}
EVERY_LAYER = pytest.mark.parametrize("make, shape", LAYERS.values(), ids=LAYERS)


def layer_of(make):
    torch.manual_seed(0)
    return make().bfloat16().requires_grad_(False)


def input_of(shape, rows=16):
    return torch.randn(rows, *shape, generator=torch.Generator().manual_seed(rows)).bfloat16()


def act(layer, x):
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        return layer(x)


def exact(layer, x):
    """Returns the plain layer's output in float64, computed from the same weights."""
    plain = nn.Linear if isinstance(layer, nn.Linear) else nn.Conv2d
    return plain.forward(copy.deepcopy(layer).double(), x.double())


def assert_rounded_once(out, layer, x):
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.double(), exact(layer, x), rtol=2**-7, atol=2**-8)


@EVERY_LAYER
def test_the_output_is_the_plain_layers_for_any_number_of_rows(make, shape):
    layer = layer_of(make)
    for rows in (0, 16, 1, 3, 8, 31, 64):
        x = input_of(shape, rows)
        assert_rounded_once(act(layer, x), layer, x)


@EVERY_LAYER
def test_float32_inputs_are_rounded_as_autocast_does(make, shape):
    layer = layer_of(make)
    x = input_of(shape).float() * 1.001
    assert torch.equal(act(layer, x), act(layer, x.bfloat16()))


@pytest.mark.parametrize("make, shape", [LAYERS["convolution"], LAYERS["padded convolution"]])
def test_a_layer_takes_pictures_of_another_size_later(make, shape):
    layer = layer_of(make)
    for size in (shape, (16, 30, 12), (16, 9, 50)):
        x = input_of(size).contiguous(memory_format=torch.channels_last)
        assert_rounded_once(act(layer, x), layer, x)


def load(layer, new):
    layer.load_state_dict(new)


def assign(layer, new):
    layer.load_state_dict({name: tensor.bfloat16() for name, tensor in new.items()}, assign=True)
    layer.requires_grad_(False)


def copy_in_place(layer, new):
    layer.weight.copy_(new["weight"])
    if layer.bias is not None:
        layer.bias.copy_(new["bias"])


def convert(layer, new):
    layer.float().load_state_dict(new)
    layer.bfloat16()


def view_as_vector(layer, new):
    vector = torch.cat([new[name].flatten() for name, _ in layer.named_parameters()]).bfloat16()
    nn.utils.vector_to_parameters(vector, layer.parameters())


@EVERY_LAYER
@pytest.mark.parametrize("change", [load, assign, copy_in_place, convert, view_as_vector])
def test_changed_weights_are_used_at_once(change, make, shape):
    layer = layer_of(make)
    x = input_of(shape)
    before = act(layer, x)
    torch.manual_seed(1)
    change(layer, make().state_dict())
    after = act(layer, x)
    assert not torch.equal(before, after)
    assert_rounded_once(after, layer, x)


@EVERY_LAYER
def test_copies_use_their_own_weights(make, shape):
    layer = layer_of(make)
    x = input_of(shape)
    before = act(layer, x)
    for again in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(act(again, x), before)
        again.weight.zero_()
        assert not torch.equal(act(again, x), before)
    assert torch.equal(act(layer, x), before)


@EVERY_LAYER
def test_after_acting_a_layer_still_learns(make, shape):
    layer = layer_of(make)
    x = input_of(shape)
    act(layer, x)
    layer.requires_grad_(True)
    layer(x.requires_grad_()).sum().backward()
    assert x.grad.abs().sum() > 0 and layer.weight.grad.abs().sum() > 0


@EVERY_LAYER
def test_after_acting_a_layer_still_computes_in_float32(make, shape):
    layer = layer_of(make)
    x = input_of(shape)
    act(layer, x)
    with torch.inference_mode():
        out = layer.float()(x.float())
    assert out.dtype == torch.float32
    torch.testing.assert_close(out.double(), exact(layer, x), rtol=1e-5, atol=1e-5)


@EVERY_LAYER
def test_in_float32_the_latest_weights_act_without_a_gradient(make, shape):
    layer = layer_of(make).float()
    x = input_of(shape).float()
    for new in (make(), make()):
        layer.load_state_dict(new.state_dict())
        with torch.inference_mode():
            out = layer(x)
        torch.testing.assert_close(out.double(), exact(layer, x), rtol=1e-5, atol=1e-5)


@EVERY_LAYER
def test_where_packing_is_impossible_the_plain_layer_computes_the_same(make, shape, monkeypatch):
    layer = layer_of(make)
    x = input_of(shape)
    expected = act(layer, x)
    monkeypatch.setattr(cpu_layers, "ops", torch.ops.no_such_library)
    cpu_layers._can_pack.cache_clear()
    try:
        assert torch.equal(act(layer_of(make), x), expected)
    finally:
        cpu_layers._can_pack.cache_clear()


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_are_packed_once_for_many_batches(dtype):
    weight = torch.randn(8, 6).to(dtype)
    x = input_of((6,)).to(dtype)
    calls = []

    def pack(weight):
        calls.append(weight)
        return weight

    with torch.inference_mode():
        keeper = PackedWeight()
        for _ in range(3):
            keeper.get(weight, x, pack)
    assert len(calls) == 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_other_types_are_not_packed(dtype):
    x = torch.randn(4, 6)
    with torch.no_grad():
        assert PackedWeight().get(torch.randn(8, 6).to(dtype), x.to(dtype), pytest.fail) is None
        assert PackedWeight().get(torch.randn(8, 6).bfloat16(), x, pytest.fail) is None


def test_names_and_shapes_in_checkpoints_are_the_plain_ones():
    for ours, plain in ((Linear(4, 5), nn.Linear(4, 5)), (Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3))):
        shapes = [{name: x.shape for name, x in layer.state_dict().items()} for layer in (ours, plain)]
        assert shapes[0] == shapes[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("side", [2, 3, 4])
@pytest.mark.parametrize("rows", [2, MANY_PICTURES])
def test_pixels_to_channels_is_pixel_unshuffle(rows, side, dtype):
    x = torch.randn(rows, 3, 12, 24).to(dtype)
    expected = nn.functional.pixel_unshuffle(x, side)
    for given in (x, x.contiguous(memory_format=torch.channels_last), x.clone().requires_grad_()):
        assert torch.equal(pixels_to_channels(given, side), expected)
    grey_last = x[:, :1].contiguous().view(rows, 12, 24, 1).permute(0, 3, 1, 2)
    expected = nn.functional.pixel_unshuffle(x[:, :1], side)
    assert torch.equal(pixels_to_channels(grey_last, side), expected)


@pytest.mark.parametrize("capability", ["AVX2", "AVX512"])
@pytest.mark.parametrize("of_input", [False, True])
@pytest.mark.parametrize("rows", [1, 33])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(4, 2, 0), (3, 1, 1), (2, 3, 0), (1, 1, 0)])
def test_gradients_are_those_of_the_convolution(
    kernel, stride, padding, rows, of_input, capability, monkeypatch
):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(cpu_layers, "MAX_MATRIX_SIZE", 50_000)  # several parts of the batch
    torch.manual_seed(0)
    conv = Conv2d(6, 10, kernel, stride, padding)
    x = torch.randn(rows, 6, 17, 14, requires_grad=True)
    out = conv(x)
    grad = torch.randn_like(out)
    out.backward(grad)
    x_last, grad_last = (
        tensor.detach().contiguous(memory_format=torch.channels_last) for tensor in (x, grad)
    )
    of_x, *others = convolution_gradients(
        grad_last, x_last, conv.weight.detach(), conv.stride, conv.padding, of_input
    )
    assert of_input or of_x is None
    for ours, expected in zip((of_x, *others), (x.grad, conv.weight.grad, conv.bias.grad)):
        if ours is not None:
            torch.testing.assert_close(ours, expected, rtol=1e-4, atol=5e-4)


@pytest.mark.parametrize("chunk", [1 << 19, 1000])
def test_elu_of_every_bfloat16_number_is_exact_to_its_rounding(chunk, monkeypatch):
    monkeypatch.setattr(cpu_layers, "ELU_CHUNK", chunk)
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    expected = nn.functional.elu(x.double())
    ours = elu_(x.clone()).double()
    assert torch.equal(ours.isnan(), x.isnan())
    is_positive = x > 0
    assert torch.equal(ours[is_positive], expected[is_positive])
    torch.testing.assert_close(ours, expected, rtol=0, atol=2**-8, equal_nan=True)
    assert elu_(torch.tensor([-1e9], dtype=torch.bfloat16)) == -1


@pytest.mark.parametrize("size", [(72, 128), (84, 84), (37, 42), (8, 8), (75, 131)])
@pytest.mark.parametrize(("kernel", "stride"), [(8, 4), (4, 2), (3, 3)])
def test_patch_convolution_is_the_convolution(size, kernel, stride):
    torch.manual_seed(0)
    x = torch.randn(2, 3, *size)
    patch = PatchConv2d(3, 6, kernel, stride)
    plain = nn.Conv2d(3, 6, kernel, stride)
    plain.load_state_dict(patch.state_dict())
    ours = patch(x)
    theirs = plain(x)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    for out in (ours, theirs):
        out.square().sum().backward()
    torch.testing.assert_close(patch.weight.grad, plain.weight.grad, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(patch.bias.grad, plain.bias.grad, rtol=1e-3, atol=1e-3)


def test_patch_convolution_passes_a_gradient_on():
    x = torch.randn(2, 3, 16, 16, requires_grad=True)
    PatchConv2d(3, 6, 8, 4)(x).sum().backward()
    assert x.grad.abs().sum() > 0
