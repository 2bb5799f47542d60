//! An ordinary client of Flight SQL.

use std::time::Duration;

use anyhow::{Context, Result};
use arrow::array::RecordBatch;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    CommandStatementIngest, TableDefinitionOptions, TableExistsOption, TableNotExistOption,
};
use futures::{StreamExt, TryStreamExt, stream};
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};

/// More than any message that a server should send.
const MESSAGE_BYTES: usize = 64 << 20;

/// A connection.
#[derive(Clone, Debug)]
pub(super) struct Client {
    inner: FlightSqlServiceClient<Channel>,
}

impl Client {
    /// Connects to a port of this machine.
    pub(super) async fn connect(port: u16) -> Result<Self> {
        let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}"))?.tcp_nodelay(true);
        let channel = endpoint.connect().await.context("cannot connect to the Flight listener")?;
        let inner = FlightServiceClient::new(channel).max_decoding_message_size(MESSAGE_BYTES);
        Ok(Self { inner: FlightSqlServiceClient::new_from_inner(inner) })
    }

    /// Runs a statement and shows each batch of its answer; returns how long that took.
    pub(super) async fn read(
        &mut self,
        statement: &str,
        mut each: impl FnMut(&RecordBatch) -> Result<()>,
    ) -> Result<Duration> {
        let started = Instant::now();
        let info = self.inner.execute(statement.to_owned(), None).await?;
        for endpoint in info.endpoint {
            let ticket = endpoint.ticket.context("an endpoint without a ticket")?;
            let mut batches = self.inner.do_get(ticket).await?;
            while let Some(batch) = batches.try_next().await? {
                each(&batch)?;
            }
        }
        Ok(started.elapsed())
    }

    /// Appends batches to an index that exists, by one stream; returns the number of rows acknowledged.
    pub(super) async fn append(&mut self, index: &str, batches: Vec<RecordBatch>) -> Result<u64> {
        let command = CommandStatementIngest {
            table_definition_options: Some(TableDefinitionOptions {
                if_not_exist: TableNotExistOption::Fail.into(),
                if_exists: TableExistsOption::Append.into(),
            }),
            table: index.to_owned(),
            ..CommandStatementIngest::default()
        };
        let count = self.inner.execute_ingest(command, stream::iter(batches).map(Ok)).await?;
        u64::try_from(count).context("the server acknowledged an unknown number of rows")
    }
}
