//! Catalogs, tables, keys, types and what the server can do.

use arrow_flight::sql::{
    CommandGetCrossReference, CommandGetDbSchemas, CommandGetExportedKeys, CommandGetImportedKeys,
    CommandGetPrimaryKeys, CommandGetSqlInfo, CommandGetTables, CommandGetXdbcTypeInfo, ProstMessageExt,
    SqlInfo,
};
use arrow_flight::{FlightDescriptor, IpcMessage};
use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::Schema;
use prost::Message;
use serde_json::json;
use tonic::{Code, Request};

use crate::support::{Client, Node, code, fetch, lines};

async fn node() -> (Node, Client) {
    let node = Node::start().await;
    node.index("logs-1", json!({ "n": { "type": "long" }, "at": { "type": "date" } }), &[]).await;
    node.index("logs-2", json!({ "word": { "type": "keyword" } }), &[]).await;
    node.index(".hidden", json!({}), &[]).await;
    let client = node.admin().await;
    (node, client)
}

async fn tables(client: &mut Client, command: CommandGetTables) -> Vec<RecordBatch> {
    let info = client.get_tables(command).await.unwrap();
    fetch(client, &info).await.unwrap()
}

fn names(batches: &[RecordBatch]) -> Vec<String> {
    batches
        .iter()
        .flat_map(|batch| batch.column(2).as_string::<i32>().iter().flatten())
        .map(str::to_owned)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_are_listed_by_patterns_with_their_columns() {
    let (node, mut client) = node().await;
    let all = tables(&mut client, CommandGetTables::default()).await;
    assert_eq!(lines(&all)[0], "|millrace||logs-1|BASETABLE|");
    assert_eq!((names(&all), all[0].num_columns()), (vec!["logs-1".to_owned(), "logs-2".to_owned()], 4));
    let of = |pattern: &str| CommandGetTables {
        table_name_filter_pattern: Some(pattern.to_owned()),
        ..Default::default()
    };
    assert_eq!(names(&tables(&mut client, of("%2")).await), ["logs-2"]);
    assert_eq!(names(&tables(&mut client, of("logs__")).await).len(), 2);
    assert_eq!(names(&tables(&mut client, of("logs")).await).len(), 0);
    let views = CommandGetTables { table_types: vec!["VIEW".to_owned()], ..Default::default() };
    assert_eq!(names(&tables(&mut client, views).await).len(), 0);
    let plain = CommandGetTables { table_types: vec!["TABLE".to_owned()], ..Default::default() };
    assert_eq!(names(&tables(&mut client, plain).await).len(), 2);
    let elsewhere = CommandGetTables { catalog: Some("other".to_owned()), ..Default::default() };
    assert_eq!(names(&tables(&mut client, elsewhere).await).len(), 0);
    let with_schema = CommandGetTables { include_schema: true, ..of("logs-1") };
    let described = tables(&mut client, with_schema).await;
    let schema = described[0].column(4).as_binary::<i32>().value(0).to_vec();
    let schema = Schema::try_from(IpcMessage(schema.into())).unwrap();
    let mut columns: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    columns.sort_unstable();
    assert_eq!(columns, ["at", "n"]);

    node.user("ann", json!([{ "names": ["logs-2"], "privileges": ["read"] }])).await;
    let mut ann = node.client("ann", "password").await;
    assert_eq!(names(&tables(&mut ann, CommandGetTables::default()).await), ["logs-2"]);
    node.user("eve", json!([])).await;
    let mut eve = node.client("eve", "password").await;
    let info = eve.get_tables(CommandGetTables::default()).await.unwrap();
    assert_eq!(code(fetch(&mut eve, &info).await), Code::PermissionDenied);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_told_has_the_schema_that_was_told() {
    let (_node, mut client) = node().await;
    let schemas = |pattern: &str| CommandGetDbSchemas {
        catalog: None,
        db_schema_filter_pattern: Some(pattern.to_owned()),
    };
    let (table, primary) = ("logs-1".to_owned(), CommandGetPrimaryKeys::default());
    let infos = [
        (client.get_catalogs().await.unwrap(), 1),
        (client.get_db_schemas(schemas("%")).await.unwrap(), 1),
        (client.get_db_schemas(schemas("x")).await.unwrap(), 0),
        (client.get_table_types().await.unwrap(), 1),
        (
            client.get_primary_keys(CommandGetPrimaryKeys { table: table.clone(), ..primary }).await.unwrap(),
            0,
        ),
        (
            client
                .get_exported_keys(CommandGetExportedKeys { table: table.clone(), ..Default::default() })
                .await
                .unwrap(),
            0,
        ),
        (client.get_imported_keys(CommandGetImportedKeys { table, ..Default::default() }).await.unwrap(), 0),
        (client.get_cross_reference(CommandGetCrossReference::default()).await.unwrap(), 0),
        (
            client
                .get_sql_info(vec![SqlInfo::FlightSqlServerName, SqlInfo::FlightSqlServerBulkIngestion])
                .await
                .unwrap(),
            2,
        ),
        (client.get_xdbc_type_info(CommandGetXdbcTypeInfo { data_type: Some(12) }).await.unwrap(), 7),
    ];
    for (info, rows) in infos {
        let told = info.clone().try_decode_schema().unwrap();
        let batches = fetch(&mut client, &info).await.unwrap();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), rows, "{told}");
        assert!(batches.iter().all(|batch| *batch.schema() == told));
    }
    let all = client.get_sql_info(Vec::new()).await.unwrap();
    let all = fetch(&mut client, &all).await.unwrap();
    assert!(all[0].num_rows() > 70, "{}", all[0].num_rows());
}

#[tokio::test(flavor = "multi_thread")]
async fn long_lists_and_patterns_take_no_more_than_short_ones() {
    let (_node, mut client) = node().await;
    // Half a megabyte of types that are none.
    let types = vec![String::new(); 200_000];
    let command = CommandGetTables { table_types: types.clone(), ..Default::default() };
    assert_eq!(tables(&mut client, command).await.len(), 0);
    let mut some = types[1_000..].to_vec();
    some.push("BASE TABLE".to_owned());
    let command = CommandGetTables { table_types: some, ..Default::default() };
    assert_eq!(names(&tables(&mut client, command).await).len(), 2);
    let pattern = |bytes| Some("%".repeat(bytes));
    let command =
        |bytes| CommandGetTables { table_name_filter_pattern: pattern(bytes), ..Default::default() };
    assert_eq!(names(&tables(&mut client, command(1_024)).await).len(), 2);
    assert_eq!(code(client.get_tables(command(1_025)).await), Code::InvalidArgument);
    let schemas = CommandGetDbSchemas { catalog: None, db_schema_filter_pattern: pattern(1_025) };
    assert_eq!(code(client.get_db_schemas(schemas).await), Code::InvalidArgument);
    // Numbers that are none, and one, a hundred thousand times each.
    let numbers = [u32::MAX, SqlInfo::FlightSqlServerName as u32].repeat(50_000);
    let command = CommandGetSqlInfo { info: numbers }.as_any().encode_to_vec();
    let token = format!("Bearer {}", client.token().unwrap());
    let mut request = Request::new(FlightDescriptor::new_cmd(command));
    request.metadata_mut().insert("authorization", token.parse().unwrap());
    let info = client.inner().clone().get_flight_info(request).await.unwrap().into_inner();
    let batches = fetch(&mut client, &info).await.unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
}
