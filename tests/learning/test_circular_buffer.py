import collections

import pytest

from sample_factory.learning.circular_buffer import CircularBuffer


@pytest.mark.parametrize("num_uses", [1, 2, 3, 7])
@pytest.mark.parametrize("num_batches", [1, 2, 4, 5])
def test_each_batch_is_used_k_times_while_at_most_n_are_kept(num_batches, num_uses):
    buffer = CircularBuffer(num_batches, num_uses)
    uses = collections.defaultdict(list)
    for now in range(40):
        earlier = buffer.add(now)
        assert earlier == sorted(earlier), "the oldest one first"
        for batch in [*earlier, now]:
            uses[batch].append(now)
        assert len(buffer._batches) <= (num_batches if num_uses > 1 else 0)
    for batch in range(40 - num_batches):
        assert len(uses[batch]) == num_uses
        assert uses[batch][0] == batch
        assert uses[batch][-1] == batch + (num_batches - 1 if num_uses > 1 else 0)
