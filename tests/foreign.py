"""An experiment of another account, for tests of what it must not do."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from sample_factory import train

ENV = "gym_CartPole-v1"
FLAGS = ["--serial_mode=True", "--num_workers=1", "--num_envs_per_worker=2", "--worker_num_splits=1"]
FLAGS += ["--rollout=8", "--batch_size=64", "--hidden_size=8", "--encoder_mlp_layers", "8", "--device=cpu"]
MODULE = "train_dir.theirs.payload"
# Leaves a mark when it is imported.
PAYLOAD = "import pathlib\npathlib.Path({mark!r}).write_text('imported')\nX = parallel_env = dict\n"


def train_briefly(folder: Path) -> None:
    """Trains ENV as folder/train_dir/theirs."""
    flags = [f"--env={ENV}", "--experiment=theirs", f"--train_dir={folder / 'train_dir'}", "--seed=3"]
    assert train.main([*flags, "--train_for_env_steps=400", *FLAGS]) == 0


def foreign_copy(trained: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> "ForeignFolder":
    """Returns a copy in `root` of what `train_briefly` has written to `trained`; `root` becomes the current
    folder."""
    shutil.copytree(trained / "train_dir", root / "train_dir")
    monkeypatch.chdir(root)
    monkeypatch.syspath_prepend(root)
    return ForeignFolder(root)


class ForeignFolder:
    """The folder `root`/train_dir/theirs, whose cfg.json another account has written.

    The module MODULE in it can be imported if `root` is the current folder, as with `python -m`.
    """

    def __init__(self, root: Path):
        self.root = root
        self.folder = root / "train_dir" / "theirs"
        self.mark = root / "mark"
        (self.folder / "__init__.py").touch()
        (self.folder / "payload.py").write_text(PAYLOAD.format(mark=str(self.mark)))
        self._values = json.loads((self.folder / "cfg.json").read_text())
        self._values.pop("signature", None)
        self.write()
        for name in ("x", "x.mp4", "x.onnx"):  # relative to the current folder
            (root / name).write_text("must not change")
        self._outside = self._files_outside()

    def write(self, **flags: Any) -> None:
        """Writes cfg.json with other values of some flags."""
        (self.folder / "cfg.json").write_text(json.dumps({**self._values, **flags}))

    def _files_outside(self) -> dict[str, bytes]:
        """Returns path -> contents."""
        found = {}
        for parent, folders, files in os.walk(self.root):
            # onnxruntime keeps a database in ~/.cache, whatever it loads.
            outside = [name for name in folders if Path(parent, name) != self.folder]
            folders[:] = [name for name in outside if name not in (".cache", "__pycache__")]
            found |= {str(Path(parent, name)): Path(parent, name).read_bytes() for name in files}
            found |= {str(Path(parent, name)): b"" for name in folders}
        return found

    def check_harmless(self) -> None:
        """Asserts that nothing of the folder was imported, and that no file outside of it has changed."""
        assert not self.mark.exists(), "code of the folder has run"
        now = self._files_outside()
        changed = [name for name, contents in now.items() if self._outside.get(name) != contents]
        assert not changed and len(now) == len(self._outside), f"files outside the folder: {changed}"
