from tests.evaluation.conftest import choosing, registry, saved_experiment  # noqa: F401
