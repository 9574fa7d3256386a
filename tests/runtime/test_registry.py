import re

import pytest

from sample_factory.runtime.registry import Registry, import_attribute, resolve


def test_a_string_is_imported_when_it_is_resolved_and_anything_else_is_returned():
    assert resolve("pathlib:Path") is __import__("pathlib").Path
    assert resolve(dict) is dict


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        ("pathlib", ValueError, "'pathlib' should be of the form 'package.module:attribute'"),
        (":Path", ValueError, "should be of the form"),
        ("pathlib:Paht", ValueError, "pathlib has no attribute Paht"),
        ("no_such_module:Path", ImportError, "No module named 'no_such_module'"),
    ],
)
def test_a_wrong_string_is_an_error_that_says_why(path, error, message):
    with pytest.raises(error, match=re.escape(message)):
        import_attribute(path)


def test_an_unknown_name_is_an_error_with_the_nearest_and_all_names():
    registry = Registry("core", {"gru": int, "lstm": float})
    registry.register("mamba", "my.module:Mamba")
    assert "mamba" in registry and registry.find("mamba") == "my.module:Mamba"
    assert registry.find("my.module:Other") == "my.module:Other"
    with pytest.raises(
        ValueError,
        match=re.escape("--core=gur is unknown; did you mean gru? known: gru, lstm, mamba; or use"),
    ):
        registry.find("gur")
    with pytest.raises(ValueError, match="--core=xyz is unknown; known: gru, lstm, mamba"):
        registry.find("xyz")
