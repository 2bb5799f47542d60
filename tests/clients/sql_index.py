"""What the clients of SQL read: an index of the documents of `target`."""

import base64
import json
import urllib.request

from target import COUNT, MAPPINGS, PASSWORD, SETTINGS, URL, USER, call, document, expect

INDEX = "client-sql"
EMPTY = "client-sql-empty"


def make():
    """Creates the index, with an alias, and one without documents."""
    remove()
    body = {"settings": SETTINGS, "mappings": MAPPINGS, "aliases": {"client-sql-alias": {}}}
    expect(call("PUT", f"/{INDEX}", body)[0], 200, "create")
    expect(call("PUT", f"/{EMPTY}", {})[0], 200, "create")
    lines = "".join('{"index":{}}\n' + json.dumps(document(n)) + "\n" for n in range(COUNT))
    request = urllib.request.Request(f"{URL}/{INDEX}/_bulk?refresh=true", lines.encode(), method="POST")
    request.add_header("Content-Type", "application/x-ndjson")
    if USER:
        request.add_header("Authorization", "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode())
    with urllib.request.urlopen(request, timeout=60) as answer:
        expect(json.loads(answer.read())["errors"], False, "bulk")


def remove():
    for index in [INDEX, EMPTY]:
        call("DELETE", f"/{index}")
