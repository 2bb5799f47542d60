"""A server of its own for one check, which is killed and started again on the same directory and ports."""

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

WORK = os.environ["CLIENT_WORK"]
# Without the binary, a check of a server that runs elsewhere cannot kill it.
SERVER = os.environ.get("CLIENT_SERVER")
if not SERVER:
    sys.exit(77)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def listens(port):
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Instance:
    """A server on a directory and a port that stay. `variables` are settings, as variables of its environment."""

    def __init__(self, name, pipelines=None, **variables):
        self.name, self.port, self.process = name, free_port(), None
        self.password = f"{name}-{os.urandom(8).hex()}"
        self.token = "Basic " + base64.b64encode(f"admin:{self.password}".encode()).decode()
        self.data, self.pipelines = os.path.join(WORK, name), os.path.join(WORK, f"{name}-pipelines")
        for directory in (self.data, self.pipelines):
            shutil.rmtree(directory, ignore_errors=True)
        os.makedirs(self.pipelines)
        for pipeline, text in (pipelines or {}).items():
            self.define(pipeline, text)
        self.variables = {
            "ADMIN_PASSWORD": self.password,
            "FLIGHT__LISTEN": "off",
            "CONSOLE__LISTEN": "off",
            "PIPELINES__LISTEN": "127.0.0.1:0",
            "PIPELINES__DIR": self.pipelines,
            # Others may fill the disk.
            "STORAGE__DISK_THRESHOLD_ENABLED": "false",
            **variables,
        }

    def define(self, pipeline, text):
        """Writes the definition of a pipeline, in one step for a server that looks at it."""
        path = os.path.join(self.pipelines, f"{pipeline}.conf")
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(path + ".new", path)

    def start(self, *ports):
        """Starts it, and waits until it answers and listens on some ports."""
        settings = {f"MILLRACE_{name}": value for name, value in self.variables.items()}
        with open(os.path.join(WORK, f"{self.name}.log"), "a", encoding="utf-8") as log:
            command = [SERVER, "serve", "--data", self.data, "--listen", f"127.0.0.1:{self.port}"]
            self.process = subprocess.Popen(command, env={**os.environ, **settings}, stdout=log, stderr=log)
        self.wait(lambda: self.call("GET", "/"), "an answer")
        self.wait(lambda: all(listens(port) for port in ports), f"listening on {ports}")

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def remove(self):
        self.kill()
        for directory in (self.data, self.pipelines):
            shutil.rmtree(directory, ignore_errors=True)

    def wait(self, condition, what, seconds=90):
        """Waits for a condition, and for as long as the server runs."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                if condition():
                    return
            except (urllib.error.URLError, ConnectionError):
                pass
            assert self.process.poll() is None, "the server ended"
            assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
            time.sleep(0.05)

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": self.token, "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def search(self, index, body):
        """Searches what is there now; nothing is in an index that is not there yet."""
        try:
            self.call("POST", f"/{index}/_refresh")
            return self.call("POST", f"/{index}/_search", body)
        except urllib.error.HTTPError as error:
            assert error.code == 404, error.read()
            return {"hits": {"hits": [], "total": {"value": 0}}, "aggregations": {}}

    def count(self, index):
        return self.search(index, {"size": 0, "track_total_hits": True})["hits"]["total"]["value"]

    def sources(self, index, field):
        """Yields a field of each document, as of one moment."""
        body = {"size": 10_000, "sort": ["_doc"], "_source": [field]}
        try:
            self.call("POST", f"/{index}/_refresh")
            answer = self.call("POST", f"/{index}/_search?scroll=5m", body)
        except urllib.error.HTTPError as error:
            # Nothing is in an index that is not there yet.
            assert error.code == 404, error.read()
            return
        while answer["hits"]["hits"]:
            yield from (hit["_source"] for hit in answer["hits"]["hits"])
            answer = self.call("POST", "/_search/scroll", {"scroll": "5m", "scroll_id": answer["_scroll_id"]})

    def numbers(self, index, field):
        """Returns a numeric field of all documents."""
        return [source[field] for source in self.sources(index, field)]
