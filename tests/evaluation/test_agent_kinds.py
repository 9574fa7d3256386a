from sample_factory.enjoy import main
from sample_factory.envs.env_registry import register_env
from tests.mixed import MixedCounting


def test_an_env_whose_agents_have_different_spaces_is_refused_in_one_line(saved_experiment, capsys):
    register_env("mixed_", lambda *args, **kwargs: MixedCounting())
    flags = saved_experiment("mixed_x", "--encoder_type=mlp", "--num_policies=2")
    assert main(["--env=mixed_x", *flags, "--no_render"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: the env's agents have different spaces (agents [0, 2]: picture (5, 4, 3)")
    assert error.count("\n") == 1
