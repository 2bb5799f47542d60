"""opensearch-py: create, index, get, bulk, search, scroll, delete."""

from opensearchpy import ConflictError, NotFoundError, OpenSearch, helpers

from target import COUNT, MAPPINGS, REFUSED, SETTINGS, URL, credentials, document, expect

INDEX = "client-opensearch"
client = OpenSearch(URL, http_auth=credentials(), http_compress=True, timeout=60)

assert client.info()["version"]["number"], "a version"
client.indices.delete(index=INDEX, ignore_unavailable=True)
expect(client.indices.exists(index=INDEX), False, "exists")
created = client.indices.create(index=INDEX, body={"settings": SETTINGS, "mappings": MAPPINGS})
expect(created["acknowledged"], True, "create")

first = client.index(index=INDEX, id="0", body=document(0))
expect((first["result"], first["_version"]), ("created", 1), "index")
again = client.index(index=INDEX, id="0", body=document(0), refresh=True)
expect((again["result"], again["_version"]), ("updated", 2), "index again")
expect(client.get(index=INDEX, id="0")["_source"], document(0), "get")
try:
    client.create(index=INDEX, id="0", body=document(0))
    raise AssertionError("create of an existing id must conflict")
except ConflictError as error:
    expect(error.error, "version_conflict_engine_exception", "conflict")

actions = ({"_index": INDEX, "_id": str(n), "_source": document(n)} for n in range(1, COUNT))
written, errors = helpers.bulk(client, actions, chunk_size=100, refresh=True)
expect((written, errors), (COUNT - 1, []), "bulk")
expect(client.count(index=INDEX)["count"], COUNT, "count")

found = client.search(index=INDEX, body={"query": {"match": {"message": "refused"}}, "track_total_hits": True})
expect(found["hits"]["total"]["value"], REFUSED, "match")
newest = client.search(
    index=INDEX,
    body={
        "size": 3,
        "sort": [{"bytes": "desc"}],
        "query": {"bool": {"filter": [{"term": {"host": "web-1"}}, {"range": {"status": {"lt": 500}}}]}},
    },
)
hosts = [hit["_source"]["host"] for hit in newest["hits"]["hits"]]
expect(hosts, ["web-1"] * 3, "filtered and sorted")
expect(newest["hits"]["hits"][0]["sort"], [newest["hits"]["hits"][0]["_source"]["bytes"]], "sort values")

scanned = {hit["_id"]: hit["_source"] for hit in helpers.scan(client, index=INDEX, size=40)}
expect(scanned, {str(n): document(n) for n in range(COUNT)}, "scroll")

client.update(index=INDEX, id="7", body={"doc": {"host": "moved"}})
expect(client.get(index=INDEX, id="7")["_source"], {**document(7), "host": "moved"}, "update")
expect(client.delete(index=INDEX, id="7")["result"], "deleted", "delete")
try:
    client.get(index=INDEX, id="7")
    raise AssertionError("a deleted document must be gone")
except NotFoundError:
    pass
outcome = client.bulk(body=[{"create": {"_index": INDEX, "_id": "0"}}, document(0), {"delete": {"_index": INDEX, "_id": "8"}}])
expect([next(iter(item.values()))["status"] for item in outcome["items"]], [409, 200], "bulk with a conflict")
expect(outcome["errors"], True, "errors")
client.indices.delete(index=INDEX)
