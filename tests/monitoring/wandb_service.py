"""Gives tests of W&B a home folder without keys, a server on the loopback, and a reader of offline runs."""

import http.server
import json
import struct
import tempfile
import threading
from pathlib import Path

import pytest

BLOCK = 32768  # bytes, of the log format of LevelDB
HEADER = 7  # bytes: of the file, and of each part of a record


@pytest.fixture
def own_home(tmp_path, monkeypatch):
    """Keeps wandb away from the home folder, from keys, and from the network."""
    for name in ("HOME", "WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_SERVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_X_DISABLE_STATS", "true")
    # A killed process leaves files there. Not in tmp_path: the name of a socket may have 108 characters.
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield


def read_records(file: Path) -> list:
    """Returns the records of an offline run: the log format of LevelDB, with a Record in each entry."""
    from wandb.proto.wandb_internal_pb2 import Record

    data = file.read_bytes()
    records, parts, at = [], b"", HEADER
    while at + HEADER <= len(data):
        if BLOCK - at % BLOCK < HEADER:
            at += BLOCK - at % BLOCK  # no room for a header
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        parts += data[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if kind in (1, 4):  # a whole record, or its last part
            records.append(Record.FromString(parts))
            parts = b""
    return records


def history(file: Path) -> list[dict[str, float]]:
    """Returns what was logged to an offline run, without wandb's own keys."""
    rows = []
    for record in read_records(file):
        if record.HasField("history"):
            items = {
                item.key or "/".join(item.nested_key): json.loads(item.value_json)
                for item in record.history.item
            }
            rows.append({key: value for key, value in items.items() if not key.startswith("_")})
    return rows


class Server(http.server.ThreadingHTTPServer):
    """Answers the requests of an online run."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.runs: list[dict] = []  # variables of the requests that create a run

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path.endswith("/file_stream"):
            self._answer({"limits": {}})
            return
        if "UpsertBucket" in request["query"]:
            self.server.runs.append(request["variables"])
        project = {"id": "p", "name": "sample_factory", "entity": {"id": "e", "name": "me"}}
        bucket = {"id": "b", "name": "r", "displayName": "r", "config": "{}", "project": project}
        data = {
            "model": {"bucket": None},  # nothing to resume
            "entity": {"organization": {"coreWeaveOrganizationId": None}},
            "createRunFiles": {"runID": "b", "uploadHeaders": [], "files": []},
            "upsertBucket": {"bucket": bucket, "inserted": True},
        }
        self._answer({"data": data})

    def _answer(self, content: dict) -> None:
        data = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        """Prints nothing."""


@pytest.fixture
def server(own_home, monkeypatch):
    """Returns a server that answers like that of W&B; there is a key for it."""
    running = Server()
    threading.Thread(target=running.serve_forever, daemon=True).start()
    monkeypatch.setenv("WANDB_BASE_URL", running.url)
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    yield running
    running.shutdown()
    running.server_close()
