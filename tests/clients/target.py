"""The server under test, and the documents that every client check writes and finds again."""

import base64
import json
import os
import urllib.error
import urllib.request

URL = os.environ["CLIENT_URL"]
USER = os.environ.get("CLIENT_USER", "")
PASSWORD = os.environ.get("CLIENT_PASSWORD", "")
WORK = os.environ["CLIENT_WORK"]
# Address of the Flight listener, as HOST:PORT.
FLIGHT = os.environ.get("CLIENT_FLIGHT", "")

COUNT = 250
MAPPINGS = {
    "properties": {
        "@timestamp": {"type": "date"},
        "message": {"type": "text"},
        "host": {"type": "keyword"},
        "status": {"type": "integer"},
        "bytes": {"type": "long"},
        "source_ip": {"type": "ip"},
        "ok": {"type": "boolean"},
        "seconds": {"type": "double"},
    }
}
SETTINGS = {"number_of_shards": 1, "number_of_replicas": 0}


def document(number):
    return {
        "@timestamp": f"2024-05-{1 + number % 28:02}T12:{number % 60:02}:00.{number:03}Z",
        "message": f"request number {number} was {'refused' if number % 5 == 0 else 'served'}",
        "host": f"web-{number % 3}",
        "status": 500 if number % 5 == 0 else 200,
        "bytes": number * 1_000_003,
        "source_ip": f"10.0.{number % 7}.{number % 250}",
        "ok": number % 5 != 0,
        "seconds": number / 8,
    }


REFUSED = COUNT // 5


def credentials():
    return (USER, PASSWORD) if USER else None


def call(method, path, body=None):
    """One plain request; returns status and JSON answer."""
    request = urllib.request.Request(URL + path, method=method)
    if USER:
        token = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        request.add_header("Authorization", "Basic " + token)
    data = None
    if body is not None:
        data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, data, timeout=60) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null")


def expect(found, expected, what):
    assert found == expected, f"{what}: {found!r}, expected {expected!r}"
