// Go's ADBC driver of Flight SQL: logins, statements, parameters, metadata, ingest, cancelling.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

const (
	index = "client-flight-go"
	count = 250
	// Exit code of a check that misses something.
	missing = 77
)

var alloc = memory.DefaultAllocator

func main() {
	address := os.Getenv("CLIENT_FLIGHT")
	if address == "" {
		os.Exit(missing)
	}
	uri, user, password := "grpc://"+address, os.Getenv("CLIENT_USER"), os.Getenv("CLIENT_PASSWORD")
	ctx := context.Background()
	call("DELETE", "/"+index, "")

	refused(ctx, uri, map[string]string{adbc.OptionKeyUsername: user, adbc.OptionKeyPassword: "wrong"})
	refused(ctx, uri, nil)
	connection := connect(ctx, uri, map[string]string{adbc.OptionKeyUsername: user, adbc.OptionKeyPassword: password})
	ingest(ctx, connection)
	statements(ctx, connection)
	parameters(ctx, connection)
	metadata(ctx, connection)
	cancelling(ctx, connection)
	must(connection.Close())

	made := struct{ ID, Encoded string }{}
	must(json.Unmarshal(call("POST", "/_security/api_key", `{"name": "key-go"}`), &made))
	byKey := connect(ctx, uri, map[string]string{flightsql.OptionAuthorizationHeader: "ApiKey " + made.Encoded})
	expect([]int64{count}, query(ctx, byKey, "SELECT COUNT(*) FROM "+index), "count by an API key")
	must(byKey.Close())
	call("DELETE", "/_security/api_key", fmt.Sprintf(`{"ids": [%q]}`, made.ID))
	call("DELETE", "/"+index, "")
}

func connect(ctx context.Context, uri string, options map[string]string) adbc.Connection {
	connection, err := open(ctx, uri, options)
	must(err)
	return connection
}

func open(ctx context.Context, uri string, options map[string]string) (adbc.Connection, error) {
	all := map[string]string{adbc.OptionKeyURI: uri}
	for name, value := range options {
		all[name] = value
	}
	database, err := flightsql.NewDriver(alloc).NewDatabase(all)
	if err != nil {
		return nil, err
	}
	return database.Open(ctx)
}

func refused(ctx context.Context, uri string, options map[string]string) {
	connection, err := open(ctx, uri, options)
	if err == nil {
		_, err = run(ctx, connection, "SELECT 1", nil)
	}
	if err == nil {
		fail("credentials %v are taken", options)
	}
}

func ingest(ctx context.Context, connection adbc.Connection) {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "_id", Type: arrow.BinaryTypes.String},
		{Name: "number", Type: arrow.PrimitiveTypes.Int64},
		{Name: "host", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "seconds", Type: arrow.PrimitiveTypes.Float64},
	}, nil)
	builder := array.NewRecordBuilder(alloc, schema)
	defer builder.Release()
	for number := range count {
		builder.Field(0).(*array.StringBuilder).Append(fmt.Sprintf("id-%d", number))
		builder.Field(1).(*array.Int64Builder).Append(int64(number))
		if number%5 == 4 {
			builder.Field(2).AppendNull()
		} else {
			builder.Field(2).(*array.StringBuilder).Append(fmt.Sprintf("web-%d", number%3))
		}
		builder.Field(3).(*array.Float64Builder).Append(float64(number) / 8)
	}
	batch := builder.NewRecordBatch()
	defer batch.Release()
	// The second time by the same ids.
	for _, mode := range []string{adbc.OptionValueIngestModeCreate, adbc.OptionValueIngestModeAppend} {
		statement, err := connection.NewStatement()
		must(err)
		must(statement.SetOption(adbc.OptionKeyIngestTargetTable, index))
		must(statement.SetOption(adbc.OptionKeyIngestMode, mode))
		must(statement.Bind(ctx, batch))
		rows, err := statement.ExecuteUpdate(ctx)
		must(err)
		expect(int64(count), rows, "rows acknowledged")
		must(statement.Close())
	}
	call("POST", "/"+index+"/_refresh", "")
}

func statements(ctx context.Context, connection adbc.Connection) {
	expect([]int64{1}, query(ctx, connection, "SELECT 1"), "SELECT 1")
	all := query(ctx, connection, "SELECT number FROM "+index+" ORDER BY number LIMIT 1000")
	for number := range count {
		expect(int64(number), all[number], "number")
	}
	expect(count, len(all), "rows")
	groups := query(ctx, connection, "SELECT COUNT(*) FROM "+index+" GROUP BY host ORDER BY host")
	expect([]int64{67, 66, 67, 50}, groups, "groups")
	if _, err := run(ctx, connection, "SELECT nothing FROM "+index, nil); err == nil || !strings.Contains(err.Error(), "nothing") {
		fail("an unknown column: %v", err)
	}
	statement, err := connection.NewStatement()
	must(err)
	defer func() { must(statement.Close()) }()
	must(statement.SetSqlQuery("SELECT number, host, seconds FROM " + index))
	schema, err := statement.(adbc.StatementExecuteSchema).ExecuteSchema(ctx)
	must(err)
	expect("number host seconds", strings.Join([]string{schema.Field(0).Name, schema.Field(1).Name, schema.Field(2).Name}, " "), "schema")
	expect(arrow.FLOAT64, schema.Field(2).Type.ID(), "type of a double")
}

func parameters(ctx context.Context, connection adbc.Connection) {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "0", Type: arrow.PrimitiveTypes.Int64},
		{Name: "1", Type: arrow.BinaryTypes.String},
		{Name: "2", Type: arrow.PrimitiveTypes.Float64},
	}, nil)
	builder := array.NewRecordBuilder(alloc, schema)
	defer builder.Release()
	builder.Field(0).(*array.Int64Builder).Append(200)
	builder.Field(1).(*array.StringBuilder).Append("web-1")
	builder.Field(2).(*array.Float64Builder).Append(30)
	batch := builder.NewRecordBatch()
	defer batch.Release()
	found, err := run(ctx, connection, "SELECT number FROM "+index+" WHERE number >= ? AND host = ? AND seconds < ? ORDER BY number", batch)
	must(err)
	var expected []int64
	for number := int64(200); number < 240; number++ {
		if number%5 != 4 && number%3 == 1 {
			expected = append(expected, number)
		}
	}
	expect(expected, found, "three parameters")
}

func metadata(ctx context.Context, connection adbc.Connection) {
	name := index
	for _, depth := range []adbc.ObjectDepth{
		adbc.ObjectDepthCatalogs, adbc.ObjectDepthDBSchemas, adbc.ObjectDepthTables, adbc.ObjectDepthColumns,
	} {
		reader, err := connection.GetObjects(ctx, depth, nil, nil, &name, nil, nil)
		must(err)
		text := ""
		for reader.Next() {
			batch := reader.RecordBatch()
			for row := range int(batch.NumRows()) {
				text += batch.Column(1).ValueStr(row)
			}
		}
		must(reader.Err())
		reader.Release()
		has := depth == adbc.ObjectDepthTables || depth == adbc.ObjectDepthColumns
		expect(has, strings.Contains(text, index), "table at this depth: "+text)
		expect(depth == adbc.ObjectDepthColumns, strings.Contains(text, "seconds"), "columns at this depth: "+text)
	}
	schema, err := connection.GetTableSchema(ctx, nil, nil, index)
	must(err)
	var names []string
	for _, field := range schema.Fields() {
		names = append(names, field.Name)
	}
	slices.Sort(names)
	expect([]string{"host", "number", "seconds"}, names, "schema of a table")
}

func cancelling(ctx context.Context, connection adbc.Connection) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := run(ctx, connection, "SELECT * FROM "+index, nil); err == nil {
		fail("a statement that is cancelled is answered")
	}
}

// Runs a statement and returns the numbers of its first column.
func run(ctx context.Context, connection adbc.Connection, text string, bound arrow.RecordBatch) (found []int64, err error) {
	statement, err := connection.NewStatement()
	if err != nil {
		return nil, err
	}
	defer func() { _ = statement.Close() }()
	if err = statement.SetSqlQuery(text); err != nil {
		return nil, err
	}
	if bound != nil {
		if err = statement.Prepare(ctx); err != nil {
			return nil, err
		}
		if err = statement.Bind(ctx, bound); err != nil {
			return nil, err
		}
	}
	reader, _, err := statement.ExecuteQuery(ctx)
	if err != nil {
		return nil, err
	}
	defer reader.Release()
	for reader.Next() {
		switch column := reader.RecordBatch().Column(0).(type) {
		case *array.Int64:
			found = append(found, column.Int64Values()...)
		case *array.Int32:
			for _, value := range column.Int32Values() {
				found = append(found, int64(value))
			}
		default:
			return nil, fmt.Errorf("a column of %s", column.DataType())
		}
	}
	return found, reader.Err()
}

func query(ctx context.Context, connection adbc.Connection, text string) []int64 {
	found, err := run(ctx, connection, text, nil)
	must(err)
	return found
}

func call(method, path, body string) []byte {
	request, err := http.NewRequest(method, os.Getenv("CLIENT_URL")+path, bytes.NewBufferString(body))
	must(err)
	request.SetBasicAuth(os.Getenv("CLIENT_USER"), os.Getenv("CLIENT_PASSWORD"))
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	must(err)
	defer func() { _ = answer.Body.Close() }()
	found, err := io.ReadAll(answer.Body)
	must(err)
	return found
}

func expect[T any](expected, found T, what string) {
	if one, other := fmt.Sprint(expected), fmt.Sprint(found); one != other {
		fail("%s: %s, expected %s", what, other, one)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func fail(format string, values ...any) {
	panic(fmt.Sprintf(format, values...))
}
