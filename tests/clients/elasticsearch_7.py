"""elasticsearch-py 7.17, which checks that the server is what it expects."""

import warnings

from elasticsearch7 import ConflictError, Elasticsearch, NotFoundError, helpers

from target import COUNT, MAPPINGS, REFUSED, SETTINGS, URL, credentials, document, expect

# 7.17 announces what 8 changes about the way these calls are written.
warnings.simplefilter("ignore", DeprecationWarning)
INDEX = "client-elasticsearch-7"
client = Elasticsearch(URL, http_auth=credentials(), http_compress=True, timeout=60)

expect(client.info()["tagline"], "You Know, for Search", "tagline")
client.indices.delete(index=INDEX, ignore=404)
client.indices.create(index=INDEX, body={"settings": SETTINGS, "mappings": MAPPINGS})
expect(client.indices.exists(index=INDEX), True, "exists")
expect(client.index(index=INDEX, body=document(0), id="0")["result"], "created", "index")
typed = client.index(index=INDEX, doc_type="event", body=document(0), id="0", refresh=True)
expect((typed["result"], typed["_type"]), ("updated", "event"), "index with a type")
expect(client.get(index=INDEX, id="0")["_source"], document(0), "get")
try:
    client.create(index=INDEX, id="0", body=document(0))
    raise AssertionError("create of an existing id must conflict")
except ConflictError:
    pass

actions = ({"_index": INDEX, "_id": str(n), "_source": document(n)} for n in range(1, COUNT))
written, errors = helpers.bulk(client, actions, chunk_size=100, refresh="wait_for")
expect((written, errors), (COUNT - 1, []), "bulk")
found = client.search(index=INDEX, body={"query": {"match": {"message": "refused"}}, "track_total_hits": True})
expect(found["hits"]["total"], {"value": REFUSED, "relation": "eq"}, "match")
scanned = {hit["_id"]: hit["_source"] for hit in helpers.scan(client, index=INDEX, size=40)}
expect(scanned, {str(n): document(n) for n in range(COUNT)}, "scroll")

expect(client.delete(index=INDEX, id="3")["result"], "deleted", "delete")
try:
    client.get(index=INDEX, id="3")
    raise AssertionError("a deleted document must be gone")
except NotFoundError:
    pass
client.indices.delete(index=INDEX)
