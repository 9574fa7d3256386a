"""--compile changes the speed, nothing else."""

import shutil

import pytest
import torch

from sample_factory.learning.learner import CPP_COMPILERS, compile_encoders
from tests.learning.test_learner import make_batch, make_learner


def test_without_a_compiler_the_message_says_what_is_missing(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(RuntimeError, match=r"C\+\+ compiler: found no g\+\+ or clang\+\+"):
        compile_encoders(make_learner().model, torch.device("cpu"))


@pytest.mark.timeout(1200)
@pytest.mark.skipif(not any(map(shutil.which, CPP_COMPILERS)), reason="needs a C++ compiler")
def test_a_compiled_learner_learns_the_same_and_its_checkpoint_has_the_same_names():
    plain, compiled = make_learner(), make_learner()
    compile_encoders(compiled.model, compiled.device)
    batch = make_batch()
    for learner in (plain, compiled):
        learner.train(batch)
        learner.train(batch)
    ours, theirs = plain.model.state_dict(), compiled.model.state_dict()
    assert list(ours) == list(theirs)
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=1e-5)
    assert compiled.model.towers[0].encoder._compiled_call_impl is not None
