"""elasticsearch-py 8, which sends its own media types and refuses servers that do not name themselves."""

from elasticsearch8 import ConflictError, Elasticsearch, NotFoundError, helpers

from target import COUNT, MAPPINGS, REFUSED, SETTINGS, URL, credentials, document, expect

INDEX = "client-elasticsearch-8"
client = Elasticsearch(URL, basic_auth=credentials(), http_compress=True, request_timeout=60)

assert client.info()["version"]["number"], "a version"
client.options(ignore_status=404).indices.delete(index=INDEX)
client.indices.create(index=INDEX, settings=SETTINGS, mappings=MAPPINGS)
expect(bool(client.indices.exists(index=INDEX)), True, "exists")
expect(client.index(index=INDEX, document=document(0), id="0", refresh=True)["result"], "created", "index")
expect(client.get(index=INDEX, id="0")["_source"], document(0), "get")
try:
    client.create(index=INDEX, id="0", document=document(0))
    raise AssertionError("create of an existing id must conflict")
except ConflictError:
    pass

actions = ({"_index": INDEX, "_id": str(n), "_source": document(n)} for n in range(1, COUNT))
written, errors = helpers.bulk(client, actions, chunk_size=100, refresh=True)
expect((written, errors), (COUNT - 1, []), "bulk")
found = client.search(index=INDEX, query={"match": {"message": "refused"}}, track_total_hits=True)
expect(found["hits"]["total"]["value"], REFUSED, "match")
page = client.search(index=INDEX, sort=[{"bytes": "asc"}], size=5, search_after=[document(9)["bytes"]])
expect([hit["_id"] for hit in page["hits"]["hits"]], ["10", "11", "12", "13", "14"], "search_after")
scanned = {hit["_id"]: hit["_source"] for hit in helpers.scan(client, index=INDEX, size=40)}
expect(scanned, {str(n): document(n) for n in range(COUNT)}, "scroll")

expect(client.delete(index=INDEX, id="3")["result"], "deleted", "delete")
try:
    client.get(index=INDEX, id="3")
    raise AssertionError("a deleted document must be gone")
except NotFoundError:
    pass
client.indices.delete(index=INDEX)
