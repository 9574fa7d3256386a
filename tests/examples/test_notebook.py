"""Runs the notebook in a kernel of Jupyter, as a user does."""

import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

pytestmark = pytest.mark.timeout(2400)  # seconds, for a busy machine

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "notebook.ipynb"
CELL_SECONDS = 1200


class Notebook:
    """A kernel that executes cells one after another."""

    def __init__(self, folder: Path):
        self._manager = KernelManager(kernel_name="")
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        self._manager._kernel_spec = KernelSpec(argv=command, language="python")
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder / "ipython")}
        self._manager.start_kernel(cwd=str(folder), env=environment)
        self._client = self._manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=CELL_SECONDS)
        self.printed = ""

    def execute(self, code: str) -> str:
        """Runs a cell; returns what it has printed. Fails if it has raised."""
        self.printed = ""
        reply = self._client.execute_interactive(code, output_hook=self._collect, timeout=CELL_SECONDS)
        assert reply["content"]["status"] == "ok", "\n".join(reply["content"]["traceback"]) + self.printed
        return self.printed

    def _collect(self, message: dict) -> None:
        self.printed += message["content"].get("text", "") if message["msg_type"] == "stream" else ""

    def interrupt(self) -> None:
        """Presses the button that interrupts."""
        self._manager.interrupt_kernel()

    def processes(self) -> list[psutil.Process]:
        """Returns the processes that the kernel has started."""
        return psutil.Process(self._manager.provisioner.pid).children(recursive=True)

    def close(self) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


@pytest.fixture
def notebook(tmp_path) -> Iterator[Notebook]:
    kernel = Notebook(tmp_path)
    yield kernel
    kernel.close()


def test_the_notebook_shows_the_outputs_of_a_run_without_paths_of_a_machine():
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert all(cell["outputs"] for cell in cells if re.search("print|plot", "".join(cell["source"])))
    assert any("image/png" in output.get("data", {}) for output in outputs)
    texts = "".join("".join(output.get("text", ())) for output in outputs)
    assert "finished: " in texts and not re.search(r"(?<![\w.])/\w", texts)


def test_the_notebook_trains_evaluates_acts_and_plots_and_an_interrupt_saves(notebook):
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    printed = "".join(map(notebook.execute, codes))
    assert re.search(r"^done \d+ ", printed, re.MULTILINE)
    # Random actions get 2.5; the most is 10.
    assert float(re.search(r"mean reward (\S+), between", printed)[1]) > 8
    assert int(re.search(r"(\d+) of 10 points", printed)[1]) >= 6

    def interrupt_once_it_trains() -> None:
        if "ready after" in notebook.printed:
            notebook.interrupt()
        else:
            threading.Timer(0.1, interrupt_once_it_trains).start()

    threading.Timer(0.1, interrupt_once_it_trains).start()
    stopped = notebook.execute(
        'result = sample_factory.run(experiment="largest", train_for_env_steps=10**9)\n'
        "print(result.status, result.reason)"
    )
    assert "stopped SIGINT received" in stopped
    assert re.search(r"^\d\d:\d\d:\d\d  SIGINT received: saving and stopping", stopped, re.MULTILINE)
    assert notebook.execute("print(len(metrics) > 0)") == "True\n"  # the kernel lives
    assert notebook.processes() == []
