//! Memory cost of a reader that opens a long answer and does not read it, as the system sees the server's process.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::sql::client::FlightSqlServiceClient;
use datafusion::arrow::array::RecordBatch;
use futures::{StreamExt, TryStreamExt};
use millrace_runtime::Instant;
use tonic::transport::Endpoint;

use crate::support::{Client, Node, long, run, ticket};

/// Tells the process that it is the server.
const CHILD: &str = "MILLRACE_TEST_STALLED_CHILD";
/// Bound on the cost of a reader.
const BOUND: u64 = 64 << 20;
/// Readers that stall at once.
const READERS: u64 = 6;
/// Time of constant memory after which it counts as final.
const CALM: Duration = Duration::from_secs(2);
/// Columns of the answer, each of 20 MB.
const COLUMNS: usize = 20;

/// Serves until its input ends, and says where. Runs only as the child of the test below.
#[tokio::test(flavor = "multi_thread")]
async fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let node = Node::start().await;
    let mut out = std::io::stdout();
    writeln!(out, "\n@{}", node.address).unwrap();
    out.flush().unwrap();
    let ends = || std::io::stdin().lines().for_each(drop);
    tokio::task::spawn_blocking(ends).await.unwrap();
}

/// The server, in a process of its own.
struct Process(Child);

impl Process {
    fn start() -> (Self, SocketAddr) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "stalled::child", "--nocapture"])
            .env(CHILD, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.find_map(|line| line.unwrap().strip_prefix('@')?.parse().ok()).unwrap();
        // What it says from then on is to go somewhere.
        std::thread::spawn(move || lines.for_each(drop));
        (Self(child), address)
    }

    fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let kilobytes =
            status.lines().find_map(|line| line.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB"));
        kilobytes.unwrap().parse::<u64>().unwrap() << 10
    }

    /// Waits until its memory grows no more. Returns the most that there was.
    async fn settled(&self) -> u64 {
        let (mut most, mut since) = (0, Instant::now());
        while since.elapsed() < CALM {
            let now = self.resident();
            if now > most + (1 << 20) {
                (most, since) = (now, Instant::now());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        most
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn client(address: SocketAddr) -> Client {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut client = FlightSqlServiceClient::new(endpoint.connect().await.unwrap());
    client.handshake("admin", "secret").await.unwrap();
    client
}

/// Opens the answer and takes the first of it.
async fn open(client: &mut Client, statement: &str) -> (FlightRecordBatchStream, usize) {
    let info = client.execute(statement.to_owned(), None).await.unwrap();
    let mut answer = client.do_get(ticket(&info)).await.unwrap();
    let rows = answer.next().await.unwrap().unwrap().num_rows();
    (answer, rows)
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_stalls_costs_little_and_loses_nothing() {
    let (server, address) = Process::start();
    let mut first = client(address).await;
    let rows = long(&mut first).await.num_rows();
    // 400 MB.
    let columns: Vec<String> = (0..COLUMNS).map(|n| format!("text AS c{n}")).collect();
    let statement = format!("SELECT n, {} FROM long", columns.join(", "));
    run(&mut first, &format!("{statement} LIMIT 10")).await.unwrap();
    let before = server.settled().await;
    let (answer, taken) = open(&mut first, &statement).await;
    let one = server.settled().await.saturating_sub(before);
    // Each on a connection of its own.
    let mut others = Vec::new();
    for _ in 1..READERS {
        let mut client = client(address).await;
        let answer = open(&mut client, &statement).await;
        others.push((client, answer));
    }
    let all = server.settled().await.saturating_sub(before);
    println!("one reader costs [{one}] bytes, [{READERS}] cost [{all}]");
    assert!(one < BOUND, "one reader costs [{one}] bytes");
    assert!(all < READERS * BOUND, "[{READERS}] readers cost [{all}] bytes");
    drop(others);
    let rest: Vec<RecordBatch> = answer.try_collect().await.unwrap();
    assert_eq!(taken + rest.iter().map(RecordBatch::num_rows).sum::<usize>(), rows);
}
