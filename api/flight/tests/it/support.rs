//! A server over an empty store, its users, and clients.

use std::net::SocketAddr;
use std::sync::Arc;

use arrow_flight::error::FlightError;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    CommandStatementIngest, TableDefinitionOptions, TableExistsOption, TableNotExistOption,
};
use arrow_flight::{FlightInfo, Ticket};
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::util::pretty::pretty_format_batches;
use futures::{TryStreamExt, stream};
use millrace_accounts::{NewApiKey, Role, TokenLifetimes, User};
use millrace_api::{AuditConfig, ListenerContext, Server, ServerConfig};
use millrace_catalog::access::Action;
use millrace_catalog::metadata::{ClusterSettingsUpdate, CreateIndex, IndicesOptions, Uuid};
use millrace_engine::{Action as Operation, Config, Engine, RefreshPolicy, Session, WriteOp};
use millrace_flight::Flight;
use millrace_listen::TlsFiles;
use millrace_query::SearchService;
use millrace_runtime::SystemClock;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

pub(crate) type Client = FlightSqlServiceClient<Channel>;

/// A running server; it ends with this.
pub(crate) struct Node {
    pub(crate) address: SocketAddr,
    pub(crate) listener: ListenerContext,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
    _data: TempDir,
}

/// Setup of a test server.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) insecure: bool,
    pub(crate) tls: Option<TlsFiles>,
    /// One that is open already, in place of one of its own.
    pub(crate) engine: Option<Arc<Engine>>,
}

impl Node {
    /// Starts one whose administrator has the password `secret`.
    pub(crate) async fn start() -> Self {
        Self::with(Setup::default()).await
    }

    pub(crate) async fn with(setup: Setup) -> Self {
        let data = tempfile::tempdir().unwrap();
        let engine = match setup.engine {
            Some(engine) => engine,
            None => {
                let storage = Config { data_dir: data.path().to_owned(), ..Config::default() };
                Engine::open(storage, Arc::new(SystemClock)).await.unwrap()
            }
        };
        let search = Arc::new(SearchService::new(Arc::clone(&engine), millrace_query::Config::default()));
        let listen: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let config = ServerConfig {
            listen: vec![listen],
            insecure: setup.insecure,
            tls: setup.tls,
            admin_password: (!setup.insecure).then(|| "secret".to_owned()),
            password_file: None,
            tokens: TokenLifetimes::default(),
            audit: AuditConfig::default(),
            notifications: millrace_notifications::Config::default(),
            snapshots: millrace_snapshot::Config::default(),
            max_content_length: 100 << 20,
            operation: millrace_api::OperationConfig::default(),
            otlp: millrace_api::OtlpConfig::default(),
        };
        let mut server = Server::bind(config, engine, search).await.unwrap();
        let mut listener = None;
        let serve = |shared: ListenerContext| {
            listener = Some(shared.clone());
            Flight::new(shared)
        };
        server.serve_also("flight", vec![listen], serve).await.unwrap();
        let address = server.addresses_of("flight")[0];
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Self { address, listener: listener.unwrap(), stop, running, _data: data }
    }

    /// Stops it, and waits for what is under way.
    pub(crate) async fn stop(self) {
        let Self { stop, running, .. } = self;
        stop.send(()).unwrap();
        running.await.unwrap();
    }

    /// Connects without credentials.
    pub(crate) async fn connect(&self) -> Client {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        FlightSqlServiceClient::new(endpoint.connect().await.unwrap())
    }

    /// Connects and logs in.
    pub(crate) async fn client(&self, name: &str, password: &str) -> Client {
        let mut client = self.connect().await;
        client.handshake(name, password).await.unwrap();
        client
    }

    pub(crate) async fn admin(&self) -> Client {
        self.client("admin", "secret").await
    }

    /// Makes a user of the password `password` with one role, of grants on indices as Elasticsearch writes them.
    pub(crate) async fn user(&self, name: &str, indices: Value) {
        self.role(name, indices).await;
        let accounts = &self.listener.node.accounts;
        let user = User { roles: vec![name.to_owned()], enabled: true, ..User::default() };
        accounts.put_user(name, user, Some("password".to_owned())).await.unwrap();
    }

    /// Makes or changes the role of a user.
    pub(crate) async fn role(&self, name: &str, indices: Value) {
        let role: Role = serde_json::from_value(json!({ "indices": indices })).unwrap();
        self.listener.node.accounts.put_role(name, role).await.unwrap();
    }

    /// Makes an API key of a user, as clients show it.
    pub(crate) async fn api_key(&self, user: &str) -> String {
        let accounts = &self.listener.node.accounts;
        let owner = accounts.principal(user).unwrap();
        let (name, roles, metadata) = ("k".to_owned(), Default::default(), Default::default());
        let new = NewApiKey { name, roles, expires_in: None, metadata };
        accounts.create_api_key(&owner, new).await.unwrap().encoded
    }

    /// Creates an index with a mapping and documents, by id.
    pub(crate) async fn index(&self, name: &str, properties: Value, documents: &[Value]) {
        self.index_with(name, json!({}), properties, documents).await;
    }

    /// The same with settings.
    pub(crate) async fn index_with(
        &self,
        name: &str,
        settings: Value,
        properties: Value,
        documents: &[Value],
    ) {
        let session = Session::system(&self.listener.node.engine).doing(Action::CreateIndex).unwrap();
        let body = json!({ "settings": settings, "mappings": { "properties": properties } });
        let create = CreateIndex::parse(name, &body, false, 0).unwrap();
        session.change(|metadata| metadata.create(&create, 0, Uuid::new_v4())).await.unwrap();
        let op = |(id, document): (usize, &Value)| {
            WriteOp::new(name, Some(id.to_string()), Operation::Index(document.to_string().into()))
        };
        let ops = documents.iter().enumerate().map(op).collect();
        let written = session.write(ops, RefreshPolicy::Immediate, std::time::Duration::from_secs(10)).await;
        assert!(written.unwrap().iter().all(Result::is_ok));
    }

    /// Deletes an index.
    pub(crate) async fn delete(&self, name: &str) {
        let session = Session::system(&self.listener.node.engine).doing(Action::DeleteIndex).unwrap();
        let options = IndicesOptions::open_and_closed();
        session.change(|metadata| metadata.delete_indices(name, &options, 0)).await.unwrap();
    }

    /// Has statements delete, which a setting forbids otherwise.
    pub(crate) async fn allow_deletion(&self) {
        let session = Session::system(&self.listener.node.engine);
        let body = json!({ "persistent": { "plugins.sql.delete.enabled": true } });
        let update = ClusterSettingsUpdate::parse(&body).unwrap();
        session.change(|metadata| metadata.update_cluster_settings(&update)).await.unwrap();
    }

    /// Changes the mapping of an index.
    pub(crate) async fn put_mapping(&self, index: &str, properties: Value) {
        let session = Session::system(&self.listener.node.engine);
        session.put_mapping(index, &json!({ "properties": properties })).await.unwrap();
    }
}

/// Returns the ticket of an info.
pub(crate) fn ticket(info: &FlightInfo) -> Ticket {
    info.endpoint[0].ticket.clone().unwrap()
}

/// Fetches what an info stands for.
pub(crate) async fn fetch(client: &mut Client, info: &FlightInfo) -> Result<Vec<RecordBatch>, FlightError> {
    client.do_get(ticket(info)).await?.try_collect().await
}

/// Runs a statement.
pub(crate) async fn run(client: &mut Client, query: &str) -> Result<Vec<RecordBatch>, FlightError> {
    let info = client.execute(query.to_owned(), None).await?;
    fetch(client, &info).await
}

/// Returns the rows of batches, as lines of a table without spaces.
pub(crate) fn lines(batches: &[RecordBatch]) -> Vec<String> {
    let table = pretty_format_batches(batches).unwrap().to_string();
    table.lines().filter(|line| line.starts_with('|')).skip(1).map(|line| line.replace(' ', "")).collect()
}

/// Returns the status of an error.
pub(crate) fn status(error: FlightError) -> Status {
    match error {
        FlightError::Tonic(status) => *status,
        other => panic!("no status: {other}"),
    }
}

pub(crate) fn code<T: std::fmt::Debug>(result: Result<T, FlightError>) -> Code {
    status(result.unwrap_err()).code()
}

pub(crate) fn batch<'a>(columns: impl IntoIterator<Item = (&'a str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter(columns).unwrap()
}

/// A command that ingests into a table.
pub(crate) fn into_table(
    table: &str,
    missing: TableNotExistOption,
    existing: TableExistsOption,
) -> CommandStatementIngest {
    let mut options = TableDefinitionOptions::default();
    options.set_if_not_exist(missing);
    options.set_if_exists(existing);
    CommandStatementIngest {
        table_definition_options: Some(options),
        table: table.to_owned(),
        schema: None,
        catalog: None,
        temporary: false,
        transaction_id: None,
        options: Default::default(),
    }
}

/// Ingests batches.
pub(crate) async fn ingest(
    client: &mut Client,
    command: CommandStatementIngest,
    batches: Vec<RecordBatch>,
) -> Result<i64, FlightError> {
    client.execute_ingest(command, stream::iter(batches.into_iter().map(Ok))).await
}

/// Ingests rows that take twenty megabytes, into `long`.
pub(crate) async fn long(client: &mut Client) -> RecordBatch {
    let text = "x".repeat(2_000);
    let rows = 10_000;
    let rows = batch([
        ("n", Arc::new(Int64Array::from_iter_values(0..rows)) as ArrayRef),
        ("text", Arc::new(StringArray::from_iter_values((0..rows).map(|_| text.as_str())))),
    ]);
    let create = into_table("long", TableNotExistOption::Create, TableExistsOption::Fail);
    let written = ingest(client, create, vec![rows.clone()]).await.unwrap();
    assert_eq!(written, rows.num_rows() as i64);
    rows
}
