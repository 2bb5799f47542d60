import java.io.IOException;
import java.net.URI;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.hc.client5.http.auth.AuthScope;
import org.apache.hc.client5.http.auth.UsernamePasswordCredentials;
import org.apache.hc.client5.http.impl.auth.BasicCredentialsProvider;
import org.apache.hc.core5.http.Header;
import org.apache.hc.core5.http.HttpHost;
import org.apache.hc.core5.http.message.BasicHeader;
import org.opensearch.client.opensearch._types.aggregations.AggregationRange;
import org.opensearch.client.opensearch.core.search.Pit;
import org.opensearch.client.json.jackson.JacksonJsonpMapper;
import org.opensearch.client.opensearch.OpenSearchClient;
import org.opensearch.client.opensearch._types.FieldValue;
import org.opensearch.client.opensearch._types.OpenSearchException;
import org.opensearch.client.opensearch._types.Refresh;
import org.opensearch.client.opensearch._types.SortOrder;
import org.opensearch.client.opensearch._types.Time;
import org.opensearch.client.opensearch._types.mapping.TypeMapping;
import org.opensearch.client.opensearch.core.BulkRequest;
import org.opensearch.client.opensearch.generic.Requests;
import org.opensearch.client.opensearch.core.search.Hit;
import org.opensearch.client.transport.httpclient5.ApacheHttpClient5TransportBuilder;
import org.opensearch.client.transport.httpclient5.ResponseException;

/** opensearch-java: what it reads into types must have every member that the types require. */
public final class OpenSearchJava {
    static final String INDEX = "client-opensearch-java";
    static final int COUNT = 250;

    public static void main(String[] arguments) throws Exception {
        URI url = URI.create(System.getenv("CLIENT_URL"));
        HttpHost host = new HttpHost(url.getScheme(), url.getHost(), url.getPort());
        String user = System.getenv("CLIENT_USER");
        var credentials = new BasicCredentialsProvider();
        if (user != null && !user.isEmpty()) {
            char[] password = System.getenv("CLIENT_PASSWORD").toCharArray();
            credentials.setCredentials(new AuthScope(host), new UsernamePasswordCredentials(user, password));
        }
        var transport = ApacheHttpClient5TransportBuilder.builder(host)
            .setMapper(new JacksonJsonpMapper())
            .setHttpClientConfigCallback(http -> http.setDefaultCredentialsProvider(credentials))
            .build();
        try (transport) {
            var client = new OpenSearchClient(transport);
            check(client);
            if (user != null && !user.isEmpty()) {
                checkKey(client, host);
            }
        }
    }

    /** An API key that may only read, as a client shows it. This client has no words for making one. */
    static void checkKey(OpenSearchClient client, HttpHost host) throws Exception {
        client.index(i -> i.index(INDEX).id("one").document(document(1)).refresh(Refresh.True));
        String body = "{\"name\": \"key-opensearch-java\", \"role_descriptors\": {\"reads\": {\"index\": [{\"names\": [\""
            + INDEX + "\"], \"privileges\": [\"read\"]}]}}}";
        String encoded;
        try (var made = client.generic().execute(Requests.builder()
                .method("PUT").endpoint("/_security/api_key").json(body).build())) {
            expect(200, made.getStatus(), "API key");
            encoded = new ObjectMapper().readTree(made.getBody().orElseThrow().bodyAsBytes()).get("encoded").asText();
        }
        var transport = ApacheHttpClient5TransportBuilder.builder(host)
            .setMapper(new JacksonJsonpMapper())
            .setDefaultHeaders(new Header[] {new BasicHeader("Authorization", "ApiKey " + encoded)})
            .build();
        try (transport) {
            var own = new OpenSearchClient(transport);
            expect(1L, own.search(s -> s.index(INDEX), Map.class).hits().total().value(), "search with a key");
            try {
                own.indices().delete(d -> d.index(INDEX));
                throw new AssertionError("a key that reads must not delete");
            } catch (IOException error) {
                // The client has an exception of its own for that, within another.
                Throwable cause = error;
                while (cause != null && !(cause instanceof ResponseException)) {
                    cause = cause.getCause();
                }
                expect(403, cause instanceof ResponseException refused ? refused.status() : error, "status of what a key may not");
            }
        }
        client.indices().delete(d -> d.index(INDEX));
    }

    static void check(OpenSearchClient client) throws Exception {
        expect("opensearch", client.info().version().distribution(), "distribution");
        if (client.indices().exists(e -> e.index(INDEX)).value()) {
            client.indices().delete(d -> d.index(INDEX));
        }
        var mappings = new TypeMapping.Builder()
            .properties("@timestamp", p -> p.date(d -> d))
            .properties("message", p -> p.text(t -> t))
            .properties("host", p -> p.keyword(k -> k))
            .properties("status", p -> p.integer(i -> i))
            .properties("bytes", p -> p.long_(l -> l))
            .build();
        var created = client.indices().create(c -> c.index(INDEX).mappings(mappings)
            .settings(s -> s.numberOfShards("1").numberOfReplicas("0")));
        expect(true, created.acknowledged(), "create");
        expect(Set.of("@timestamp", "message", "host", "status", "bytes"),
            client.indices().getMapping(g -> g.index(INDEX)).get(INDEX).mappings().properties().keySet(), "mapping");
        client.indices().getSettings(g -> g.index(INDEX));
        client.indices().get(g -> g.index(INDEX));

        var bulk = new BulkRequest.Builder().refresh(Refresh.True);
        for (int n = 0; n < COUNT; n++) {
            String id = Integer.toString(n);
            Map<String, Object> document = document(n);
            bulk.operations(o -> o.index(i -> i.index(INDEX).id(id).document(document)));
        }
        bulk.operations(o -> o.create(c -> c.index(INDEX).id("0").document(document(0))));
        var written = client.bulk(bulk.build());
        expect(COUNT + 1, written.items().size(), "items");
        expect(true, written.errors(), "the conflict");
        expect(409, written.items().get(COUNT).status(), "status of the conflict");
        expect("version_conflict_engine_exception", written.items().get(COUNT).error().type(), "type of the conflict");

        expect("created", client.index(i -> i.index(INDEX).id("one").document(document(1))).result().jsonValue(), "index");
        expect(true, client.get(g -> g.index(INDEX).id("one"), Map.class).found(), "get");
        expect("updated", client.update(u -> u.index(INDEX).id("one").doc(Map.of("host", "moved")), Map.class)
            .result().jsonValue(), "update");
        expect(2, client.mget(m -> m.index(INDEX).ids("1", "2"), Map.class).docs().size(), "mget");
        expect("deleted", client.delete(d -> d.index(INDEX).id("one").refresh(Refresh.True)).result().jsonValue(), "delete");
        try {
            client.delete(d -> d.index("client-missing").id("one"));
            throw new AssertionError("a missing index must be told");
        } catch (OpenSearchException error) {
            expect(404, error.status(), "status");
        }
        expect((long) COUNT, client.count(c -> c.index(INDEX)).count(), "count");

        var found = client.search(s -> s.index(INDEX).size(3).trackTotalHits(t -> t.enabled(true))
            .query(q -> q.match(m -> m.field("message").query(FieldValue.of("refused"))))
            .sort(o -> o.field(f -> f.field("bytes").order(SortOrder.Desc)))
            .highlight(h -> h.fields("message", f -> f))
            .aggregations("hosts", a -> a.terms(t -> t.field("host")).aggregations("bytes", b -> b.stats(v -> v.field("bytes"))))
            .aggregations("days", a -> a.dateHistogram(d -> d.field("@timestamp").fixedInterval(Time.of(t -> t.time("1d")))))
            .aggregations("percentiles", a -> a.percentiles(p -> p.field("bytes")))
            .aggregations("distinct", a -> a.cardinality(c -> c.field("status")))
            .aggregations("ranges", a -> a.range(r -> r.field("status").ranges(List.of(AggregationRange.of(x -> x.to("400")), AggregationRange.of(x -> x.from("400"))))))
            .aggregations("refused", a -> a.filter(f -> f.term(t -> t.field("status").value(FieldValue.of(500))))), Map.class);
        expect((long) COUNT / 5, found.hits().total().value(), "match");
        expect(3, found.hits().hits().size(), "hits");
        expect(3, found.aggregations().get("hosts").sterms().buckets().array().size(), "terms");
        long most = found.aggregations().get("hosts").sterms().buckets().array().get(0).aggregations().get("bytes").stats().count();
        expect(true, most > 0, "stats");
        expect(true, found.aggregations().get("days").dateHistogram().buckets().array().size() > 20, "days");
        expect(1L, found.aggregations().get("distinct").cardinality().value(), "cardinality");
        expect(2, found.aggregations().get("ranges").range().buckets().array().size(), "ranges");
        expect((long) COUNT / 5, found.aggregations().get("refused").filter().docCount(), "filter");
        found.aggregations().get("percentiles").tdigestPercentiles().values();
        var several = client.msearch(m -> m.searches(s -> s.header(h -> h.index(INDEX)).body(b -> b.query(q -> q.matchAll(a -> a)))), Map.class);
        expect((long) COUNT, several.responses().get(0).result().hits().total().value(), "msearch");
        client.fieldCaps(f -> f.index(INDEX).fields("*"));
        expect(true, client.indices().validateQuery(v -> v.index(INDEX).query(q -> q.matchAll(a -> a))).valid(), "validate");
        client.indices().analyze(a -> a.index(INDEX).field("message").text("Two words"));

        Set<String> scrolled = new HashSet<>();
        var page = client.search(s -> s.index(INDEX).size(40).scroll(t -> t.time("1m")), Map.class);
        String scroll = page.scrollId();
        List<Hit<Map>> hits = page.hits().hits();
        while (!hits.isEmpty()) {
            hits.forEach(hit -> scrolled.add(hit.id()));
            String id = scroll;
            var next = client.scroll(s -> s.scrollId(id).scroll(t -> t.time("1m")), Map.class);
            scroll = next.scrollId();
            hits = next.hits().hits();
        }
        expect(COUNT, scrolled.size(), "scroll");
        String last = scroll;
        expect(true, client.clearScroll(c -> c.scrollId(last)).succeeded(), "clear scroll");
        String pit = client.createPit(p -> p.targetIndexes(INDEX).keepAlive(t -> t.time("1m"))).pitId();
        var pinned = client.search(s -> s.size(5).pit(Pit.of(p -> p.id(pit).keepAlive("1m"))), Map.class);
        expect(5, pinned.hits().hits().size(), "point in time");
        client.listAllPit();
        client.deletePit(d -> d.pitId(List.of(pit)));

        expect((long) COUNT, client.indices().stats(s -> s.index(INDEX)).indices().get(INDEX).primaries().docs().count(), "stats");
        client.indices().stats(s -> s);
        client.nodes().info();
        client.nodes().stats();
        expect(1, client.cluster().stats(s -> s).nodes().count().total(), "cluster stats");
        expect(1, client.cluster().health().numberOfNodes(), "health");
        client.cluster().getSettings(s -> s.includeDefaults(true));
        client.cluster().pendingTasks();
        client.indices().flush(f -> f.index(INDEX));
        client.indices().refresh(r -> r.index(INDEX));
        client.indices().forcemerge(f -> f.index(INDEX));
        client.indices().segments(s -> s.index(INDEX));
        client.indices().putAlias(p -> p.index(INDEX).name(INDEX + "-alias"));
        expect(Set.of(INDEX), client.indices().getAlias(g -> g.name(INDEX + "-alias")).result().keySet(), "alias");
        client.indices().putIndexTemplate(p -> p.name(INDEX).indexPatterns(INDEX + "-none-*").template(t -> t.mappings(mappings)));
        expect(1, client.indices().getIndexTemplate(g -> g.name(INDEX)).indexTemplates().size(), "template");
        client.indices().deleteIndexTemplate(d -> d.name(INDEX));

        var deleted = client.deleteByQuery(d -> d.index(INDEX).refresh(true)
            .query(q -> q.term(t -> t.field("status").value(FieldValue.of(500)))));
        expect((long) COUNT / 5, deleted.deleted(), "delete by query");

        expect(true, client.cat().indices().valueBody().stream().anyMatch(row -> INDEX.equals(row.index())), "cat indices");
        client.cat().health();
        client.cat().nodes();
        client.cat().shards();
        client.cat().segments();
        client.cat().allocation();
        client.cat().aliases();
        client.cat().count();
        client.cat().templates();
        client.cat().plugins();
        client.cat().master();
        client.indices().delete(d -> d.index(INDEX));
    }

    static Map<String, Object> document(int n) {
        boolean refused = n % 5 == 0;
        return Map.of(
            "@timestamp", String.format("2024-05-%02dT12:00:00Z", 1 + n % 28),
            "message", "request number " + n + " was " + (refused ? "refused" : "served"),
            "host", "web-" + n % 3,
            "status", refused ? 500 : 200,
            "bytes", n * 1_000_003L);
    }

    static void expect(Object expected, Object found, String what) {
        if (!expected.equals(found instanceof Integer number && expected instanceof Long ? number.longValue() : found)) {
            throw new AssertionError(what + ": " + found + ", expected " + expected);
        }
    }
}
