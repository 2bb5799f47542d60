import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Timestamp;
import java.sql.Types;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Properties;
import java.util.Set;

/**
 * OpenSearch's JDBC driver, by the name under which Maven Central has it: logins, statements, parameters, values by getObject, pages,
 * metadata.
 */
public final class OpenSearchJdbc {
    static final String INDEX = "client-opensearch-jdbc";
    static final int COUNT = 250;

    public static void main(String[] arguments) throws Exception {
        URI server = URI.create(System.getenv("CLIENT_URL"));
        String url = "jdbc:elasticsearch://" + server;
        String user = System.getenv("CLIENT_USER");
        String password = System.getenv("CLIENT_PASSWORD");
        make();
        // 1. A wrong password.
        if (user != null && !user.isEmpty()) {
            try (Connection connection = login(url, user, "wrong", 0)) {
                throw new AssertionError("a wrong password is taken");
            } catch (SQLException expected) {
                expect(false, expected.getMessage().isEmpty(), "a message");
            }
        }
        try (Connection connection = login(url, user, password, 0)) {
            // 2. A connection that lives.
            expect(true, connection.isValid(10), "valid");
            statements(connection);
            parameters(connection);
            values(connection);
            metadata(connection);
        }
        // 15. Pages.
        try (Connection connection = login(url, user, password, 40);
            Statement statement = connection.createStatement();
            ResultSet rows = statement.executeQuery("SELECT number FROM " + INDEX)) {
            Set<Long> found = new HashSet<>();
            while (rows.next()) {
                found.add(rows.getLong(1));
            }
            expect(COUNT, found.size(), "rows of all pages");
        }
        call("DELETE", "/" + INDEX, "");
        System.exit(0);
    }

    static Connection login(String url, String user, String password, int fetchSize) throws SQLException {
        var properties = new Properties();
        if (user != null && !user.isEmpty()) {
            properties.put("user", user);
            properties.put("password", password);
        }
        if (fetchSize > 0) {
            properties.put("fetchSize", String.valueOf(fetchSize));
        }
        return DriverManager.getConnection(url, properties);
    }

    static void statements(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            // 3. A statement without a table.
            expect(List.of("1"), strings(statement.executeQuery("SELECT 1"), 1), "SELECT 1");
            // 4. Groups and labels.
            String groups = "SELECT host, COUNT(*) AS many, AVG(number) FROM " + INDEX + " GROUP BY host ORDER BY host";
            try (ResultSet rows = statement.executeQuery(groups)) {
                expect("many", rows.getMetaData().getColumnLabel(2), "label");
                for (int group = 0; group < 3; group++) {
                    expect(true, rows.next(), "group " + group);
                    expect("web-" + group, rows.getString("host"), "host");
                    expect(group == 0 ? 84 : 83, rows.getInt("many"), "documents of group " + group);
                }
                expect(false, rows.next(), "more groups");
            }
            // 5. A condition, an order and a cut.
            String largest = "SELECT number FROM " + INDEX + " WHERE host = 'web-1' ORDER BY number DESC LIMIT 2";
            expect(List.of("247", "244"), strings(statement.executeQuery(largest), 1), "the largest");
            // 6. Full text.
            String hits = "SELECT number FROM " + INDEX + " WHERE MATCH(text, 'refused') LIMIT 1000";
            expect(COUNT / 5, strings(statement.executeQuery(hits), 1).size(), "hits");
            // 7. No rows.
            expect(List.of(), strings(statement.executeQuery("SELECT number FROM " + INDEX + " WHERE number < 0"), 1), "no rows");
            // 8. Errors.
            for (String wrong : List.of("SELECT nothing FROM " + INDEX, "SELECT * FROM client-nowhere", "SELEC 1")) {
                try {
                    statement.executeQuery(wrong);
                    throw new AssertionError("it is taken: " + wrong);
                } catch (SQLException expected) {
                    expect(false, expected.getMessage() == null, wrong);
                }
            }
        }
    }

    static void parameters(Connection connection) throws SQLException {
        // 9. Parameters of several types, twice.
        String text = "SELECT number FROM " + INDEX + " WHERE number >= ? AND host = ? AND seconds < ? ORDER BY number";
        try (PreparedStatement statement = connection.prepareStatement(text)) {
            for (int first : new int[] {200, 230}) {
                statement.setInt(1, first);
                statement.setString(2, "web-1");
                statement.setDouble(3, 30.0);
                List<String> expected = new ArrayList<>();
                for (int number = first; number < COUNT; number++) {
                    if (number % 3 == 1 && number / 8.0 < 30.0) {
                        expected.add(String.valueOf(number));
                    }
                }
                expect(expected, strings(statement.executeQuery(), 1), "numbers from " + first);
            }
        }
        // 10. Quotes within a value.
        try (PreparedStatement statement = connection.prepareStatement("SELECT COUNT(*) FROM " + INDEX + " WHERE host = ?")) {
            statement.setString(1, "web-1' OR '1' = '1");
            expect(List.of("0"), strings(statement.executeQuery(), 1), "quotes");
        }
    }

    static void values(Connection connection) throws SQLException {
        // 11. Every column of every row by getObject and by its type.
        String text = "SELECT * FROM " + INDEX + " ORDER BY number LIMIT 1000";
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery(text)) {
            ResultSetMetaData about = rows.getMetaData();
            for (int number = 0; number < COUNT; number++) {
                expect(true, rows.next(), "row " + number);
                for (int column = 1; column <= about.getColumnCount(); column++) {
                    Object value = rows.getObject(column);
                    expect(false, value == null, about.getColumnLabel(column) + " of " + number);
                }
                expect(number, rows.getInt("number"), "number");
                expect("web-" + number % 3, rows.getString("host"), "host");
                expect((1L << 40) + number, rows.getLong("bytes"), "bytes");
                expect(number / 8.0, rows.getDouble("seconds"), "seconds");
                expect(number % 2 == 0, rows.getBoolean("ok"), "ok");
                expect(true, rows.getObject("at") instanceof Timestamp, "type of at");
                expect(Timestamp.valueOf(String.format("2024-05-01 00:%02d:%02d.123", number / 60, number % 60)),
                    rows.getTimestamp("at"), "at");
            }
            expect(false, rows.next(), "end");
        }
        // 12. Types of columns.
        try (Statement statement = connection.createStatement();
            ResultSet rows = statement.executeQuery("SELECT number, bytes, seconds, ok, at, host FROM " + INDEX + " LIMIT 1")) {
            List<Integer> types = new ArrayList<>();
            for (int column = 1; column <= 6; column++) {
                types.add(rows.getMetaData().getColumnType(column));
            }
            expect(List.of(Types.INTEGER, Types.BIGINT, Types.DOUBLE, Types.BOOLEAN, Types.TIMESTAMP, Types.VARCHAR), types, "types");
        }
    }

    static void metadata(Connection connection) throws SQLException {
        // 13. Tables.
        DatabaseMetaData about = connection.getMetaData();
        expect(false, about.getDatabaseProductVersion().isEmpty(), "version");
        expect(List.of(INDEX), strings(about.getTables(null, null, INDEX, null), 3), "tables");
        // 14. Columns.
        Set<String> columns = new HashSet<>(strings(about.getColumns(null, null, INDEX, null), 4));
        expect(Set.of("number", "host", "bytes", "seconds", "ok", "at", "text"), columns, "columns");
    }

    static void make() throws Exception {
        call("DELETE", "/" + INDEX, "");
        call("PUT", "/" + INDEX, """
            {"mappings": {"properties": {"number": {"type": "integer"}, "host": {"type": "keyword"}, "bytes": {"type": "long"},
             "seconds": {"type": "double"}, "ok": {"type": "boolean"}, "at": {"type": "date"}, "text": {"type": "text"}}}}""");
        var body = new StringBuilder();
        for (int number = 0; number < COUNT; number++) {
            body.append(String.format("{\"index\":{}}%n{\"number\":%d,\"host\":\"web-%d\",\"bytes\":%d,\"seconds\":%s,\"ok\":%b,"
                + "\"at\":\"2024-05-01T00:%02d:%02d.123Z\",\"text\":\"%s\"}%n", number, number % 3, (1L << 40) + number, number / 8.0,
                number % 2 == 0, number / 60, number % 60, number % 5 == 0 ? "refused" : "served"));
        }
        String answer = call("POST", "/" + INDEX + "/_bulk?refresh=true", body.toString());
        expect(true, answer.contains("\"errors\":false"), answer);
    }

    static String call(String method, String path, String body) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(System.getenv("CLIENT_URL") + path))
            .header("Content-Type", "application/json")
            .method(method, HttpRequest.BodyPublishers.ofString(body));
        String user = System.getenv("CLIENT_USER");
        if (user != null && !user.isEmpty()) {
            byte[] login = (user + ":" + System.getenv("CLIENT_PASSWORD")).getBytes(StandardCharsets.UTF_8);
            request.header("Authorization", "Basic " + Base64.getEncoder().encodeToString(login));
        }
        return HttpClient.newHttpClient().send(request.build(), HttpResponse.BodyHandlers.ofString()).body();
    }

    static List<String> strings(ResultSet rows, int column) throws SQLException {
        try (rows) {
            List<String> found = new ArrayList<>();
            while (rows.next()) {
                found.add(rows.getString(column));
            }
            return found;
        }
    }

    static void expect(Object expected, Object found, String what) {
        if (!Objects.equals(expected, found)) {
            throw new AssertionError(what + ": " + found + ", expected " + expected);
        }
    }
}
