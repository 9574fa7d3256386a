"""A small Hugging Face Hub on the loopback: the endpoints that huggingface_hub uses for models."""

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import yaml

TOKEN = "hf_writer"  # may write to the repositories of USER
READER = "hf_reader"  # is known, and may write nowhere
USER = "me"
LARGE = (".pth", ".milestone", ".mp4")  # endings of files that are stored by LFS; .tfevents too


def is_large(path: str) -> bool:
    return path.endswith(LARGE) or "tfevents" in path


class Repository:
    """The files of one model at its newest commit: path -> contents."""

    def __init__(self, private: bool):
        self.private = private
        self.files: dict[str, bytes] = {}
        self.commits: list[str] = []  # their messages

    @property
    def sha(self) -> str:
        return hashlib.sha1(str(len(self.commits)).encode()).hexdigest()


class HubServer:
    """Serves until `close`. `requests`: method and path of each request. `broken`: paths that answer 410."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.objects: dict[str, bytes] = {}  # of LFS, by SHA-256
        self.requests: list[tuple[str, str]] = []
        self.broken: set[str] = set()
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    hub: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *args) -> None:
        """Prints nothing."""

    def do_GET(self) -> None:
        self._route()

    do_HEAD = do_POST = do_PUT = do_GET

    def _route(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self._body = self.rfile.read(length) if length else self._read_chunks()
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append((self.command, path))
        parts = path.strip("/").split("/")
        if path in self.hub.broken:
            self._answer(410, {"error": "out of order"})  # 5xx would be asked for again and again
        elif parts[0] == "api":
            self._api(parts[1:])
        elif parts[0] == "lfs":
            self._large_object(parts[1])
        elif path.endswith(".git/info/lfs/objects/batch"):
            self._batch()
        elif parts[2:3] == ["resolve"]:
            self._resolve("/".join(parts[:2]), "/".join(parts[4:]))
        else:
            self._answer(404, {"error": f"no endpoint {path}"})

    def _read_chunks(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return b""
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _api(self, parts: list[str]) -> None:
        if parts == ["repos", "create"]:
            self._create()
        elif parts == ["validate-yaml"]:
            text = json.loads(self._body)["content"]
            yaml.safe_load(text.split("---")[1])
            self._answer(200, {})
        elif parts[0] == "models":
            self._model("/".join(parts[1:3]), parts[3:])
        else:
            self._answer(404, {"error": "no such endpoint"})

    def _create(self) -> None:
        asked = json.loads(self._body)
        name = f"{asked['organization']}/{asked['name']}"
        if self._token() not in (TOKEN, READER):
            self._answer(401, {"error": "Invalid username or password."})
        elif name in self.hub.repositories:
            self._answer(409, {"error": "This model exists", "url": f"{self.hub.url}/{name}"})
        elif self._token() != TOKEN or asked["organization"] != USER:
            self._answer(403, {"error": f"You don't have the rights to create a model under {name}"})
        else:
            self.hub.repositories[name] = Repository(asked.get("visibility") == "private")
            self._answer(200, {"url": f"{self.hub.url}/{name}"})

    def _model(self, name: str, action: list[str]) -> None:
        repository = self.hub.repositories.get(name)
        if repository is None or (repository.private and self._token() != TOKEN):
            self._answer(404 if self._token() else 401, {"error": "Repository not found"}, _NOT_FOUND)
        elif not action or action[0] == "revision":
            if action[1:] not in ([], ["main"], [repository.sha]):
                self._answer(404, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound"})
                return
            self._answer(200, {"id": name, "sha": repository.sha, "private": repository.private, "tags": []})
        elif action[0] == "tree":
            self._answer(200, [self._entry(path, data) for path, data in repository.files.items()])
        elif self._token() != TOKEN:
            self._answer(403, {"error": "Forbidden: you need write access"})
        elif action[0] == "preupload":
            files = json.loads(self._body)["files"]
            self._answer(200, {"files": [_upload_mode(file["path"]) for file in files]})
        elif action[0] == "commit":
            self._commit(name, repository)

    def _entry(self, path: str, data: bytes) -> dict:
        entry = {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
        if is_large(path):
            sha = hashlib.sha256(data).hexdigest()
            entry["lfs"] = {"oid": sha, "size": len(data), "pointerSize": 134}
        return entry

    def _commit(self, name: str, repository: Repository) -> None:
        for line in self._body.splitlines():
            operation = json.loads(line)
            value = operation["value"]
            if operation["key"] == "header":
                repository.commits.append(value["summary"])
            elif operation["key"] == "file":
                repository.files[value["path"]] = base64.b64decode(value["content"])
            elif operation["key"] == "lfsFile":
                repository.files[value["path"]] = self.hub.objects[value["oid"]]
            elif operation["key"] == "deletedFile":
                del repository.files[value["path"]]
        url = f"{self.hub.url}/{name}/commit/{repository.sha}"
        self._answer(200, {"success": True, "commitOid": repository.sha, "commitUrl": url})

    def _batch(self) -> None:
        objects = []
        for asked in json.loads(self._body)["objects"]:
            place = {"href": f"{self.hub.url}/lfs/{asked['oid']}"}
            known = asked["oid"] in self.hub.objects
            objects.append({**asked, **({} if known else {"actions": {"upload": place, "verify": place}})})
        self._answer(200, {"transfer": "basic", "objects": objects})

    def _large_object(self, oid: str) -> None:
        if self.command == "PUT":
            assert hashlib.sha256(self._body).hexdigest() == oid
            self.hub.objects[oid] = self._body
            self._answer(200, {})
        elif self.command == "POST":  # verify
            is_there = len(self.hub.objects.get(oid, b"")) == json.loads(self._body)["size"]
            self._answer(200 if is_there else 404, {})
        else:
            self._send(200, self.hub.objects[oid], {"ETag": f'"{oid}"'})

    def _resolve(self, name: str, path: str) -> None:
        repository = self.hub.repositories[name]
        data = repository.files[path]
        entry = self._entry(path, data)
        headers = {"X-Repo-Commit": repository.sha, "ETag": f'"{entry["oid"]}"'}
        if "lfs" not in entry:
            self._send(200, data, headers)
            return
        sha = entry["lfs"]["oid"]
        self.hub.objects[sha] = data
        # As the Hub does, from another host.
        linked = {"X-Linked-Etag": f'"{sha}"', "X-Linked-Size": str(len(data))}
        self._send(302, b"", {**headers, **linked, "Location": f"http://localhost:{self.hub.port}/lfs/{sha}"})

    def _token(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    def _answer(self, status: int, value: object, headers: dict[str, str] | None = None) -> None:
        self._send(
            status, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})}
        )

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


_NOT_FOUND = {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}


def _upload_mode(path: str) -> dict:
    return {"path": path, "uploadMode": "lfs" if is_large(path) else "regular", "shouldIgnore": False}
