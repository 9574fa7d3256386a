"""A batched simulator of torch on a device: training batches hold what has happened in it."""

import pytest

from tests.gpu.devices import FLAG_VALUES
from tests.gpu.simulators import CHECKED_STEPS, MarkedCart, compare, milliseconds

COPIES = 16


@pytest.mark.parametrize("device", FLAG_VALUES)
def test_batches_hold_what_is_in_the_ledger_of_a_simulator(tmp_path, device):
    counts = compare(COPIES, tmp_path, device=device)
    assert counts["steps"] >= CHECKED_STEPS * COPIES
    assert counts["episodes that failed"] > 10 and counts["episodes that were cut"] > 10
    assert not any(count for name, count in counts.items() if name.startswith("wrong"))


def test_a_ledger_that_lacks_a_step_is_told_apart(tmp_path, monkeypatch):
    step = MarkedCart.step

    def lose_one(cart, actions):
        returned = step(cart, actions)
        if len(cart.ledger) == 30:
            cart.ledger[29] = cart.ledger[28]
        return returned

    monkeypatch.setattr(MarkedCart, "step", lose_one)
    counts = compare(COPIES, tmp_path, device="cpu")
    assert {name for name, count in counts.items() if name.startswith("wrong") and count} >= {
        f"wrong {name}" for name in ("observations", "actions", "rewards")
    }


def test_a_step_and_its_parts_take_time(monkeypatch):
    monkeypatch.setattr("tests.gpu.simulators.ALONE_SECONDS", 0.01)
    assert all(0 < taken < 1000 for taken in milliseconds(COPIES, "cpu").values())
