import java.math.BigDecimal;
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
import java.time.Instant;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Calendar;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Properties;
import java.util.Set;
import java.util.TimeZone;
import java.util.logging.LogManager;

/** The Flight SQL JDBC driver: logins, statements, parameters, values of all types, metadata. */
public final class FlightJdbc {
    static final String INDEX = "client-flight-jdbc";
    static final String OBJECTS = "client-flight-jdbc-objects";
    static final int COUNT = 250;
    static final Calendar UTC = Calendar.getInstance(TimeZone.getTimeZone("UTC"));

    public static void main(String[] arguments) throws Exception {
        String address = System.getenv("CLIENT_FLIGHT");
        if (address == null || address.isEmpty()) {
            System.exit(77);
        }
        // Refused logins would fill it.
        LogManager.getLogManager().reset();
        String url = "jdbc:arrow-flight-sql://" + address + "/?useEncryption=false";
        make();
        refused(url, "", "");
        refused(url, System.getenv("CLIENT_USER"), "wrong");
        try (Connection connection = login(url, System.getenv("CLIENT_USER"), System.getenv("CLIENT_PASSWORD"))) {
            statements(connection);
            parameters(connection);
            values(connection);
            objects(connection);
            metadata(connection);
        }
        token(url);
        zones(url);
        call("DELETE", "/" + INDEX, "");
        call("DELETE", "/" + OBJECTS, "");
        System.exit(0);
    }

    static Connection login(String url, String user, String password) throws SQLException {
        var properties = new Properties();
        properties.put("user", user);
        properties.put("password", password);
        return DriverManager.getConnection(url, properties);
    }

    static void refused(String url, String user, String password) {
        try (Connection connection = login(url, user, password); Statement statement = connection.createStatement()) {
            statement.executeQuery("SELECT 1");
        } catch (SQLException expected) {
            return;
        }
        throw new AssertionError("a wrong password is taken");
    }

    static void statements(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            expect(List.of(1), integers(statement.executeQuery("SELECT 1")), "SELECT 1");
            String all = "SELECT number FROM " + INDEX + " ORDER BY number LIMIT 1000";
            expect(COUNT, integers(statement.executeQuery(all)).size(), "rows");
            statement.setMaxRows(10);
            expect(10, integers(statement.executeQuery(all)).size(), "rows with setMaxRows");
            statement.setMaxRows(0);
            String groups = "SELECT host, COUNT(*) AS many, AVG(number) FROM " + INDEX + " GROUP BY host ORDER BY host";
            try (ResultSet rows = statement.executeQuery(groups)) {
                expect("many", rows.getMetaData().getColumnLabel(2), "label");
                for (int group = 0; group < 3; group++) {
                    expect(true, rows.next(), "group " + group);
                    expect("web-" + group, rows.getString(1), "host");
                    expect(group == 1 ? 66 : 67, rows.getInt("many"), "documents of group " + group);
                }
                expect(true, rows.next(), "the group without a host");
                expect(null, rows.getString(1), "no host");
                expect(50, rows.getInt("many"), "documents without a host");
                expect(false, rows.next(), "more groups");
            }
            expect(List.of(), integers(statement.executeQuery("SELECT number FROM " + INDEX + " WHERE number < 0")), "no rows");
            try {
                statement.executeQuery("SELECT nothing FROM " + INDEX);
                throw new AssertionError("an unknown column is taken");
            } catch (SQLException expected) {
                expect(true, expected.getMessage().contains("nothing"), expected.getMessage());
            }
        }
    }

    static void parameters(Connection connection) throws SQLException {
        String text = "SELECT number FROM " + INDEX + " WHERE number >= ? AND host = ? AND seconds < ? ORDER BY number";
        try (PreparedStatement statement = connection.prepareStatement(text)) {
            expect(3, statement.getParameterMetaData().getParameterCount(), "parameters");
            for (int first : new int[] {200, 230}) {
                statement.setInt(1, first);
                statement.setString(2, "web-1");
                statement.setDouble(3, 30.0);
                List<Integer> expected = new ArrayList<>();
                for (int number = first; number < COUNT; number++) {
                    if (number % 5 != 4 && number % 3 == 1 && number / 8.0 < 30.0) {
                        expected.add(number);
                    }
                }
                expect(expected, integers(statement.executeQuery()), "numbers from " + first);
            }
        }
        try (PreparedStatement statement = connection.prepareStatement("SELECT COUNT(*) FROM " + INDEX + " WHERE at < ?")) {
            statement.setTimestamp(1, Timestamp.from(Instant.parse("2024-05-01T00:01:40Z")), UTC);
            expect(List.of(80), integers(statement.executeQuery()), "a timestamp");
        }
        try (PreparedStatement statement = connection.prepareStatement("SELECT number FROM " + INDEX + " ORDER BY number")) {
            statement.setMaxRows(7);
            expect(7, integers(statement.executeQuery()).size(), "prepared, with setMaxRows");
        }
    }

    static void values(Connection connection) throws SQLException {
        String text = "SELECT * FROM " + INDEX + " ORDER BY number";
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery(text)) {
            for (int number = 0; number < COUNT; number++) {
                expect(true, rows.next(), "row " + number);
                expect(number, rows.getInt("number"), "number");
                if (number % 5 == 4) {
                    for (String column : List.of("host", "bytes", "big", "seconds", "ok", "at")) {
                        expect(null, rows.getObject(column), column + " of " + number);
                        expect(true, rows.wasNull(), column + " was null");
                    }
                    continue;
                }
                expect("web-" + number % 3, rows.getString("host"), "host");
                expect((1L << 53) + number, rows.getLong("bytes"), "bytes");
                expect(new BigDecimal("18446744073709551615").subtract(BigDecimal.valueOf(number)),
                    new BigDecimal(rows.getString("big")), "big");
                expect(number / 8.0, rows.getDouble("seconds"), "seconds");
                expect(0, BigDecimal.valueOf(number / 8.0).compareTo(rows.getBigDecimal("seconds")), "seconds, exactly");
                expect(number % 2 == 0, rows.getBoolean("ok"), "ok");
                expect(at(number), rows.getTimestamp("at", UTC).toInstant(), "at");
                expect("text “" + number + "”", rows.getString("text"), "text");
            }
            expect(false, rows.next(), "end");
        }
    }

    /** What tools do with an index that they do not know: `SELECT *`, and getObject on every column. */
    static void objects(Connection connection) throws Exception {
        call("DELETE", "/" + OBJECTS, "");
        call("PUT", "/" + OBJECTS, """
            {"mappings": {"properties": {"byte": {"type": "byte"}, "short": {"type": "short"}, "integer": {"type": "integer"},
             "long": {"type": "long"}, "unsigned": {"type": "unsigned_long"}, "half": {"type": "half_float"},
             "float": {"type": "float"}, "double": {"type": "double"}, "scaled": {"type": "scaled_float", "scaling_factor": 10},
             "ok": {"type": "boolean"}, "word": {"type": "keyword"}, "text": {"type": "text"}, "at": {"type": "date"},
             "nanos": {"type": "date_nanos"}, "ip": {"type": "ip"}, "point": {"type": "geo_point"}, "bytes": {"type": "binary"},
             "object": {"properties": {"name": {"type": "keyword"}}}, "words": {"type": "keyword"}, "times": {"type": "date"}}}}""");
        call("POST", "/" + OBJECTS + "/_doc?refresh=true", """
            {"byte": 1, "short": 2, "integer": 3, "long": 4, "unsigned": 18446744073709551615, "half": 0.5, "float": 1.5,
             "double": 2.5, "scaled": 3.5, "ok": true, "word": "w", "text": "t", "at": "2024-05-01T12:00:00.123Z",
             "nanos": "2024-05-01T12:00:00.123456789Z", "ip": "10.0.0.1", "point": {"lat": 1, "lon": 2}, "bytes": "AAEC",
             "object": {"name": "o"}, "words": ["a", "b"], "times": ["2024-05-01T12:00:00Z", "2024-05-02T12:00:00Z"]}""");
        call("POST", "/" + OBJECTS + "/_doc?refresh=true", "{\"integer\": 9}");
        String text = "SELECT * FROM " + OBJECTS + " ORDER BY integer";
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery(text)) {
            objects(rows);
        }
        try (PreparedStatement statement = connection.prepareStatement(text); ResultSet rows = statement.executeQuery()) {
            objects(rows);
        }
        String computed = "SELECT MAX(at) AS last, COUNT(*) AS many, CAST('2024-05-01' AS DATE) AS day, TIME('10:20:30') AS time, NULL AS nothing FROM " + OBJECTS;
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery(computed)) {
            expect(true, rows.next(), "a row");
            expect(true, rows.getObject("last") instanceof Timestamp, "type of a computed timestamp");
            for (int column = 1; column <= 4; column++) {
                expect(false, rows.getObject(column) == null, rows.getMetaData().getColumnLabel(column));
            }
            expect(null, rows.getObject("nothing"), "nothing");
        }
        try (ResultSet column = connection.getMetaData().getColumns(null, null, OBJECTS, "at")) {
            expect(true, column.next(), "a column");
            expect(Types.TIMESTAMP, column.getInt("DATA_TYPE"), "type of a time");
        }
    }

    /** Reads a row with a value in each column, and one with a single value. */
    static void objects(ResultSet rows) throws SQLException {
        ResultSetMetaData about = rows.getMetaData();
        expect(20, about.getColumnCount(), "columns");
        for (int row = 0; row < 2; row++) {
            expect(true, rows.next(), "row " + row);
            for (int column = 1; column <= about.getColumnCount(); column++) {
                Object value = rows.getObject(column);
                boolean empty = row == 1 && !about.getColumnLabel(column).equals("integer");
                expect(empty, value == null, about.getColumnLabel(column) + " of row " + row + " is null");
                expect(empty, rows.wasNull(), about.getColumnLabel(column) + " of row " + row + " was null");
            }
            if (row == 0) {
                Timestamp at = (Timestamp) rows.getObject("at");
                expect(at, rows.getTimestamp("at"), "a time as an object");
                expect(Instant.parse("2024-05-01T12:00:00.123Z"), rows.getTimestamp("at", UTC).toInstant(), "a time");
                expect(123_000_000, rows.getTimestamp("nanos", UTC).toInstant().getNano() / 1_000_000 * 1_000_000, "nanoseconds");
                Object[] words = (Object[]) rows.getArray("words").getArray();
                expect(List.of("a", "b"), List.of(words[0].toString(), words[1].toString()), "words");
            }
        }
        expect(false, rows.next(), "end");
    }

    /** The header that gives timestamps their zone is a property of the connection. */
    static void zones(String url) throws SQLException {
        String zoned = url + "&x-timestamp-zone=utc";
        String text = "SELECT at FROM " + OBJECTS + " WHERE integer = 3";
        try (Connection connection = login(zoned, System.getenv("CLIENT_USER"), System.getenv("CLIENT_PASSWORD"));
            Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery(text)) {
            expect(Types.TIMESTAMP_WITH_TIMEZONE, rows.getMetaData().getColumnType(1), "type of a time with a zone");
        }
    }

    static void metadata(Connection connection) throws SQLException {
        DatabaseMetaData about = connection.getMetaData();
        expect(true, about.getDatabaseProductName().toLowerCase().contains("millrace"), about.getDatabaseProductName());
        expect(false, about.getDatabaseProductVersion().isEmpty(), "version");
        expect(false, about.supportsTransactions(), "transactions");
        expect(true, strings(about.getTables(null, null, "client-flight-%", null), "TABLE_NAME").contains(INDEX), "tables");
        expect(Set.of(INDEX), strings(about.getTables(null, null, INDEX, null), "TABLE_NAME"), "one table");
        expect(Set.of(), strings(about.getTables(null, null, "client-nowhere%", null), "TABLE_NAME"), "no table");
        expect(Set.of("number", "host", "bytes", "big", "seconds", "ok", "at", "text"),
            strings(about.getColumns(null, null, INDEX, null), "COLUMN_NAME"), "columns");
        try (ResultSet column = about.getColumns(null, null, INDEX, "bytes")) {
            expect(true, column.next(), "a column");
            expect(Types.BIGINT, column.getInt("DATA_TYPE"), "type of a long");
        }
        expect(false, strings(about.getTableTypes(), "TABLE_TYPE").isEmpty(), "types of tables");
        expect(false, strings(about.getCatalogs(), "TABLE_CAT").isEmpty(), "catalogs");
        expect(false, strings(about.getSchemas(), "TABLE_SCHEM").isEmpty(), "schemas");
        expect(Set.of(), strings(about.getPrimaryKeys(null, null, INDEX), "COLUMN_NAME"), "keys");
        expect(Set.of(), strings(about.getExportedKeys(null, null, INDEX), "FKCOLUMN_NAME"), "exported keys");
        expect(Set.of(), strings(about.getImportedKeys(null, null, INDEX), "FKCOLUMN_NAME"), "imported keys");
        about.getTypeInfo().close();
    }

    /** A token of a login stands for a name and a password. */
    static void token(String url) throws Exception {
        String body = String.format("{\"username\":\"%s\",\"password\":\"%s\"}",
            System.getenv("CLIENT_USER"), System.getenv("CLIENT_PASSWORD"));
        String answer = call("PUT", "/_service/login", body);
        String token = answer.replaceAll(".*\"token\":\"([^\"]+)\".*", "$1");
        var properties = new Properties();
        properties.put("token", token);
        try (Connection connection = DriverManager.getConnection(url, properties);
            Statement statement = connection.createStatement()) {
            expect(List.of(1), integers(statement.executeQuery("SELECT 1")), "by a token");
        }
    }

    static Instant at(int number) {
        return Instant.parse("2024-05-01T00:00:00.123Z").plusSeconds(number);
    }

    static void make() throws Exception {
        call("DELETE", "/" + INDEX, "");
        call("PUT", "/" + INDEX, """
            {"mappings": {"properties": {"number": {"type": "integer"}, "host": {"type": "keyword"}, "bytes": {"type": "long"},
             "big": {"type": "unsigned_long"}, "seconds": {"type": "double"}, "ok": {"type": "boolean"}, "at": {"type": "date"},
             "text": {"type": "text"}}}}""");
        var body = new StringBuilder();
        for (int number = 0; number < COUNT; number++) {
            body.append("{\"index\":{}}\n");
            if (number % 5 == 4) {
                body.append("{\"number\":").append(number).append("}\n");
                continue;
            }
            body.append(String.format("{\"number\":%d,\"host\":\"web-%d\",\"bytes\":%d,\"big\":%s,\"seconds\":%s,\"ok\":%b,"
                + "\"at\":\"%s\",\"text\":\"text “%d”\"}%n", number, number % 3, (1L << 53) + number,
                new BigDecimal("18446744073709551615").subtract(BigDecimal.valueOf(number)), number / 8.0, number % 2 == 0,
                at(number), number));
        }
        String answer = call("POST", "/" + INDEX + "/_bulk?refresh=true", body.toString());
        expect(true, answer.contains("\"errors\":false"), answer);
    }

    static String call(String method, String path, String body) throws Exception {
        String user = System.getenv("CLIENT_USER") + ":" + System.getenv("CLIENT_PASSWORD");
        var request = HttpRequest.newBuilder(URI.create(System.getenv("CLIENT_URL") + path))
            .header("Content-Type", "application/json")
            .header("Authorization", "Basic " + Base64.getEncoder().encodeToString(user.getBytes(StandardCharsets.UTF_8)))
            .method(method, HttpRequest.BodyPublishers.ofString(body))
            .build();
        return HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body();
    }

    static List<Integer> integers(ResultSet rows) throws SQLException {
        try (rows) {
            List<Integer> found = new ArrayList<>();
            while (rows.next()) {
                found.add(rows.getInt(1));
            }
            return found;
        }
    }

    static Set<String> strings(ResultSet rows, String column) throws SQLException {
        try (rows) {
            Set<String> found = new HashSet<>();
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
