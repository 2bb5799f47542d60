"""elasticsearch-py 9: documents, and users, roles, API keys and logins."""

import elasticsearch9
from elasticsearch9 import helpers

from accounts import elasticsearch
from target import COUNT, MAPPINGS, REFUSED, SETTINGS, URL, credentials, document, expect

INDEX = "client-elasticsearch-9"
client = elasticsearch9.Elasticsearch(URL, basic_auth=credentials(), http_compress=True, request_timeout=60)

assert client.info()["version"]["number"], "a version"
client.options(ignore_status=404).indices.delete(index=INDEX)
client.indices.create(index=INDEX, settings=SETTINGS, mappings=MAPPINGS)
actions = ({"_index": INDEX, "_id": str(n), "_source": document(n)} for n in range(COUNT))
expect(helpers.bulk(client, actions, chunk_size=100, refresh=True), (COUNT, []), "bulk")
found = client.search(index=INDEX, query={"match": {"message": "refused"}}, track_total_hits=True)
expect(found["hits"]["total"]["value"], REFUSED, "match")
scanned = {hit["_id"]: hit["_source"] for hit in helpers.scan(client, index=INDEX, size=40)}
expect(scanned, {str(n): document(n) for n in range(COUNT)}, "scroll")
client.indices.delete(index=INDEX)

if credentials():
    elasticsearch(elasticsearch9, "9", lambda pair: {"basic_auth": pair})
