//! `millrace sql` and `millrace ppl`: a shell for statements against a running server.
//!
//! Statements come from `-e`, from a pipe, or from a terminal, where they are kept in a history.
//! [`Statements`] cuts input into statements, [`Server`] asks, [`table`] draws the answers. A line of PPL that ends with a tab
//! lists the words that can follow (`completion`).

mod completion;
mod input;
pub(crate) mod table;

use std::io::{BufRead, ErrorKind, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use millrace_runtime::Instant;
use reqwest::Method;
use serde_json::{Value, json};

use crate::cli::{SqlArgs, SqlFormat};
use crate::exit::Failure;
use crate::remote::{Remote, refusal};
use crate::serve::runtime;

use input::Statements;

/// Lines of the history that are kept.
const HISTORY: usize = 10_000;
/// Entries of the history that are shown.
const SHOWN: usize = 50;

/// The language of a shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    /// SQL.
    Sql,
    /// PPL.
    Ppl,
}

impl Language {
    fn name(self) -> &'static str {
        match self {
            Self::Sql => "sql",
            Self::Ppl => "ppl",
        }
    }

    /// The file of the history: `MILLRACE_SQL_HISTORY` or `MILLRACE_PPL_HISTORY`, else in the home directory.
    fn history_file(self) -> Option<PathBuf> {
        let name = self.name();
        let variable = format!("MILLRACE_{}_HISTORY", name.to_ascii_uppercase());
        let home = || {
            let home = std::env::var_os("HOME")?;
            Some(PathBuf::from(home).join(format!(".millrace_{name}_history")))
        };
        std::env::var_os(variable).map(PathBuf::from).or_else(home)
    }
}

/// Runs the shell.
pub(crate) fn run(args: SqlArgs, language: Language) -> Result<(), Failure> {
    let runtime = runtime(0)?;
    let server = Server::new(&args, language).map_err(Failure::other)?;
    let ask = |statement: &str| runtime.block_on(server.ask(statement, args.format, args.quiet));
    if !args.execute.is_empty() {
        let mut statements = Statements::new(language);
        for text in &args.execute {
            statements.add(text);
            statements.end();
            for statement in statements.take() {
                ask(&statement).map_err(Failure::other)?;
            }
        }
        return Ok(());
    }
    let complete = |text: &str| runtime.block_on(completion::complete(&server.remote, text));
    let done = match std::io::stdin().is_terminal() {
        true => interactive(&ask, &complete, &server),
        false => piped(&ask, language),
    };
    done.map_err(Failure::other)
}

/// Asks the statements of a pipe; the first that fails ends it.
fn piped(ask: &dyn Fn(&str) -> Result<()>, language: Language) -> Result<()> {
    let mut statements = Statements::new(language);
    for line in std::io::stdin().lock().lines() {
        statements.add(&line.context("cannot read the input")?);
        for statement in statements.take() {
            ask(&statement)?;
        }
    }
    statements.end();
    for statement in statements.take() {
        ask(&statement)?;
    }
    Ok(())
}

/// Asks what is typed until the end of the input; failures are shown. Lines are edited by the terminal.
fn interactive(
    ask: &dyn Fn(&str) -> Result<()>,
    complete: &dyn Fn(&str) -> Vec<String>,
    server: &Server,
) -> Result<()> {
    let (url, language) = (&server.remote.url, server.language);
    let mut history = History::open(language.history_file());
    if language == Language::Ppl {
        say(format_args!("a line that ends with a tab lists the words that can follow"));
    }
    say(format_args!(
        "{url}: end statements with ;   \\h shows the history, \\N asks its entry N again, \\q ends"
    ));
    let mut statements = Statements::new(language);
    let mut line = String::new();
    loop {
        let name = if statements.is_open() { "..." } else { language.name() };
        let _ = write!(std::io::stdout(), "{name}> ");
        let _ = std::io::stdout().flush();
        line.clear();
        if std::io::stdin().lock().read_line(&mut line).context("cannot read the input")? == 0 {
            say(format_args!(""));
            return Ok(());
        }
        let typed = line.trim_end_matches(['\n', '\r']);
        if let Some(begun) = typed.strip_suffix('\t').filter(|_| language == Language::Ppl) {
            let text = format!("{}{begun}", statements.open_text());
            for word in complete(&text) {
                say(format_args!("{word}"));
            }
            continue;
        }
        match line.trim().strip_prefix('\\').filter(|_| !statements.is_open()) {
            Some("q") => return Ok(()),
            Some("h") => {
                for (number, entry) in history.latest() {
                    say(format_args!("{number:>5}  {entry}"));
                }
            }
            Some(number) => match number.parse().ok().and_then(|number| history.entry(number)) {
                Some(entry) => {
                    say(format_args!("{entry};"));
                    statements.add(&format!("{entry};"));
                }
                None => say(format_args!("error: there is no entry \\{number}")),
            },
            None => statements.add(line.trim_end_matches(['\n', '\r'])),
        }
        for statement in statements.take() {
            history.add(&statement)?;
            if let Err(error) = ask(&statement) {
                say(format_args!("error: {error:#}"));
            }
        }
    }
}

/// Statements that were asked, the oldest first.
#[derive(Debug)]
struct History {
    file: Option<PathBuf>,
    entries: Vec<String>,
}

impl History {
    /// Reads the file, of which the last lines are kept.
    fn open(file: Option<PathBuf>) -> Self {
        // There is none at the first start.
        let text = file.as_ref().and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
        let skipped = text.lines().count().saturating_sub(HISTORY);
        Self { file, entries: text.lines().skip(skipped).map(str::to_owned).collect() }
    }

    /// Adds a statement, on one line.
    fn add(&mut self, statement: &str) -> Result<()> {
        let entry = statement.split_whitespace().collect::<Vec<_>>().join(" ");
        if self.entries.last() == Some(&entry) {
            return Ok(());
        }
        if let Some(file) = &self.file {
            let mut open = std::fs::OpenOptions::new();
            let mut file = open
                .create(true)
                .append(true)
                .open(file)
                .with_context(|| format!("cannot write {}", file.display()))?;
            writeln!(file, "{entry}")?;
        }
        self.entries.push(entry);
        Ok(())
    }

    /// Lists the last entries with their numbers.
    fn latest(&self) -> impl Iterator<Item = (usize, &String)> {
        let skipped = self.entries.len().saturating_sub(SHOWN);
        self.entries.iter().enumerate().skip(skipped).map(|(at, entry)| (at + 1, entry))
    }

    fn entry(&self, number: usize) -> Option<String> {
        self.entries.get(number.checked_sub(1)?).cloned()
    }
}

/// The server that is asked.
#[derive(Debug)]
struct Server {
    remote: Remote,
    language: Language,
}

impl Server {
    fn new(args: &SqlArgs, language: Language) -> Result<Self> {
        let timeout = Duration::from_secs(args.timeout);
        let remote = Remote::new(&args.url, args.user.as_deref(), args.insecure_tls, timeout)?;
        Ok(Self { remote, language })
    }

    /// Asks a statement and shows the answer.
    async fn ask(&self, statement: &str, format: SqlFormat, quiet: bool) -> Result<()> {
        let asked = match format {
            SqlFormat::Table | SqlFormat::Jdbc => "jdbc",
            SqlFormat::Csv => "csv",
            SqlFormat::Raw => "raw",
        };
        let started = Instant::now();
        let url = format!("{}/_plugins/_{}?format={asked}", self.remote.url, self.language.name());
        let request = self.remote.request(Method::POST, url).json(&json!({ "query": statement }));
        let mut response =
            request.send().await.with_context(|| format!("cannot reach {}", self.remote.url))?;
        let status = response.status();
        if status.is_success() && matches!(format, SqlFormat::Csv | SqlFormat::Raw) {
            // It may be of any length, of which a reader that has gone away wants no more.
            let mut out = std::io::stdout();
            while let Some(part) = response.chunk().await.context("the answer broke off")? {
                match out.write_all(&part) {
                    Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
                    written => written.context("cannot write the answer")?,
                }
            }
            return match out.flush() {
                Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
                flushed => flushed.context("cannot write the answer"),
            };
        }
        let text = response.text().await.context("cannot read the answer")?;
        let elapsed = started.elapsed();
        if !status.is_success() {
            return Err(anyhow!("{}", refusal(&text).unwrap_or_else(|| format!("{status}: {text}"))));
        }
        match format {
            SqlFormat::Table => {
                let answer: Value = serde_json::from_str(&text).context("the answer is not JSON")?;
                let drawn = table::draw(&answer);
                say(format_args!("{drawn}"));
                if !quiet {
                    let number = |name: &str| answer.get(name).and_then(Value::as_u64).unwrap_or(0);
                    let (size, total) = (number("size"), number("total"));
                    let of = if total > size { format!(" of {total}") } else { String::new() };
                    let rows = if size == 1 { "row" } else { "rows" };
                    say(format_args!("({size}{of} {rows}, {:.1} ms)", elapsed.as_secs_f64() * 1e3));
                }
            }
            SqlFormat::Jdbc | SqlFormat::Csv | SqlFormat::Raw => say(format_args!("{text}")),
        }
        Ok(())
    }
}

/// Writes a line to stdout; a reader that has gone away is not a failure.
fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
