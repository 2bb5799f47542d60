//! A corpus on disk: bulk bodies, ready to be sent.
//!
//! Making documents while a two-core machine measures would measure the making, so a corpus is made
//! once. `<name>.bulk` holds the bodies one after another (action line, document line, …), and
//! `<name>.json` says what they are and where each begins; it is written last, so a corpus that was
//! broken off is made again. Bodies are read by position, one a client, so memory stays bounded
//! whatever the size of the corpus.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::random::Random;
use crate::shape::DocumentKind;

/// Origin of the documents' ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Ids {
    /// The server's.
    Generated,
    /// Position in the corpus.
    Sequential,
    /// Drawn from `0..space`, so that documents overwrite each other.
    Random {
        /// Number of distinct ids.
        space: u64,
    },
}

/// Specification of a corpus. The same specification gives the same bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// Name of the shape.
    pub(crate) shape: String,
    /// Seed.
    pub(crate) seed: u64,
    /// Number of documents.
    pub(crate) docs: u64,
    /// Ids.
    pub(crate) ids: Ids,
    /// Bytes of a body at which it is closed.
    pub(crate) body_bytes: u64,
}

/// One bulk request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Body {
    /// Offset in the file.
    pub(crate) offset: u64,
    /// Its length.
    pub(crate) bytes: u64,
    /// Documents in it.
    pub(crate) docs: u64,
    /// Bytes of JSON in its documents, line breaks counted, action lines not.
    pub(crate) source_bytes: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Index {
    spec: Spec,
    bodies: Vec<Body>,
}

/// An open corpus.
#[derive(Debug)]
pub(crate) struct Corpus {
    /// Specification of the corpus.
    pub(crate) spec: Spec,
    /// Its bodies in order.
    pub(crate) bodies: Vec<Body>,
    file: File,
}

impl Spec {
    fn file_name(&self) -> String {
        let ids = match self.ids {
            Ids::Generated => String::new(),
            Ids::Sequential => "-ids".to_owned(),
            Ids::Random { space } => format!("-overwrite{space}"),
        };
        format!("{}-{}-{}{ids}", self.shape, self.docs, self.seed)
    }
}

impl Corpus {
    /// Opens the corpus of a specification in a directory, making it first where it is missing.
    ///
    /// # Errors
    ///
    /// The directory cannot be written to, or is too small.
    pub(crate) fn open(directory: &Path, shape: DocumentKind, spec: Spec) -> Result<Self> {
        let stem = directory.join(spec.file_name());
        let (data, index) = (with_extension(&stem, "bulk"), with_extension(&stem, "json"));
        let known: Option<Index> =
            fs::read(&index).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let bodies = match known {
            Some(known) if known.spec == spec => known.bodies,
            _ => make(directory, &data, &index, shape, &spec)?,
        };
        let file = File::open(&data).with_context(|| format!("cannot open {}", data.display()))?;
        let expected = bodies.last().map_or(0, |body| body.offset + body.bytes);
        if file.metadata()?.len() != expected {
            bail!("{} is not {expected} bytes long: delete it to make it anew", data.display());
        }
        Ok(Self { spec, bodies, file })
    }

    /// Returns the beginning of the corpus: whole bodies with about `docs` documents.
    pub(crate) fn beginning(&self, docs: u64) -> Result<Self> {
        let mut left = docs;
        let taken = |body: &&Body| {
            let take = left > 0;
            left = left.saturating_sub(body.docs);
            take
        };
        let bodies: Vec<Body> = self.bodies.iter().take_while(taken).copied().collect();
        let docs = bodies.iter().map(|body| body.docs).sum();
        Ok(Self { spec: Spec { docs, ..self.spec.clone() }, bodies, file: self.file.try_clone()? })
    }

    /// Reads a body.
    pub(crate) fn read(&self, body: Body) -> Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(body.bytes)?];
        self.file.read_exact_at(&mut bytes, body.offset)?;
        Ok(bytes)
    }

    /// Returns the bytes of JSON of all documents.
    pub(crate) fn source_bytes(&self) -> u64 {
        self.bodies.iter().map(|body| body.source_bytes).sum()
    }
}

/// Makes a corpus of documents that come from elsewhere.
#[derive(Debug)]
pub(crate) struct Builder {
    out: BufWriter<File>,
    body_bytes: usize,
    buffer: Vec<u8>,
    body: Body,
    bodies: Vec<Body>,
}

impl Builder {
    /// Starts a file with no documents.
    pub(crate) fn create(path: &Path, body_bytes: usize) -> Result<Self> {
        let file = File::options().create(true).truncate(true).read(true).write(true).open(path);
        let file = file.with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self {
            out: BufWriter::with_capacity(1 << 20, file),
            body_bytes,
            buffer: Vec::with_capacity(body_bytes + 4096),
            body: Body { offset: 0, bytes: 0, docs: 0, source_bytes: 0 },
            bodies: Vec::new(),
        })
    }

    /// Appends a document: JSON without line breaks.
    pub(crate) fn add(&mut self, document: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(b"{\"index\":{}}\n");
        self.buffer.extend_from_slice(document);
        self.buffer.push(b'\n');
        self.body.docs += 1;
        self.body.source_bytes += document.len() as u64 + 1;
        if self.buffer.len() >= self.body_bytes { self.close() } else { Ok(()) }
    }

    fn close(&mut self) -> Result<()> {
        if self.body.docs > 0 {
            self.out.write_all(&self.buffer)?;
            self.body.bytes = self.buffer.len() as u64;
            self.bodies.push(self.body);
            let offset = self.body.offset + self.body.bytes;
            self.body = Body { offset, bytes: 0, docs: 0, source_bytes: 0 };
            self.buffer.clear();
        }
        Ok(())
    }

    /// Ends the corpus.
    pub(crate) fn finish(mut self) -> Result<Corpus> {
        self.close()?;
        let file = self.out.into_inner().context("cannot write the corpus")?;
        let spec = Spec {
            shape: "collected".to_owned(),
            seed: 0,
            docs: self.bodies.iter().map(|body| body.docs).sum(),
            ids: Ids::Generated,
            body_bytes: self.body_bytes as u64,
        };
        Ok(Corpus { spec, bodies: self.bodies, file })
    }
}

fn with_extension(stem: &Path, extension: &str) -> PathBuf {
    let mut name = stem.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    PathBuf::from(name)
}

fn make(directory: &Path, data: &Path, index: &Path, shape: DocumentKind, spec: &Spec) -> Result<Vec<Body>> {
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let _ = fs::remove_file(index);
    let file = File::create(data).with_context(|| format!("cannot create {}", data.display()))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let bodies = write(&mut out, shape, spec).with_context(|| format!("cannot write {}", data.display()))?;
    out.into_inner().context("cannot write the corpus")?.sync_all()?;
    fs::write(index, serde_json::to_vec(&Index { spec: spec.clone(), bodies: bodies.clone() })?)?;
    Ok(bodies)
}

/// Writes the bodies of a specification.
fn write(out: &mut impl Write, shape: DocumentKind, spec: &Spec) -> Result<Vec<Body>> {
    let mut generator = shape.generator(spec.seed, spec.docs);
    let mut random = Random::new(spec.seed ^ 0x1d5);
    let mut bodies = Vec::new();
    let mut body = Body { offset: 0, bytes: 0, docs: 0, source_bytes: 0 };
    let mut buffer = Vec::with_capacity(usize::try_from(spec.body_bytes)? + 4096);
    for position in 0..spec.docs {
        match spec.ids {
            Ids::Generated => buffer.extend_from_slice(b"{\"index\":{}}\n"),
            Ids::Sequential => writeln!(buffer, "{{\"index\":{{\"_id\":\"{position}\"}}}}")?,
            Ids::Random { space } => {
                writeln!(buffer, "{{\"index\":{{\"_id\":\"{}\"}}}}", random.below(space.max(1)))?;
            }
        }
        let start = buffer.len();
        generator.next(&mut buffer);
        buffer.push(b'\n');
        body.docs += 1;
        body.source_bytes += (buffer.len() - start) as u64;
        if buffer.len() as u64 >= spec.body_bytes || position + 1 == spec.docs {
            out.write_all(&buffer)?;
            body.bytes = buffer.len() as u64;
            bodies.push(body);
            body = Body { offset: body.offset + body.bytes, bytes: 0, docs: 0, source_bytes: 0 };
            buffer.clear();
        }
    }
    Ok(bodies)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(ids: Ids) -> Spec {
        Spec { shape: "http-logs".to_owned(), seed: 3, docs: 1_000, ids, body_bytes: 20_000 }
    }

    #[test]
    fn bodies_partition_the_documents() {
        let directory = tempfile::tempdir().unwrap();
        let corpus = Corpus::open(directory.path(), DocumentKind::HttpLogs, spec(Ids::Generated)).unwrap();
        assert_eq!(corpus.bodies.iter().map(|body| body.docs).sum::<u64>(), 1_000);
        let mut source = 0;
        for body in &corpus.bodies {
            let text = String::from_utf8(corpus.read(*body).unwrap()).unwrap();
            assert!(text.ends_with("}\n"));
            assert_eq!(text.lines().count() as u64, 2 * body.docs);
            assert!(text.lines().step_by(2).all(|line| line == "{\"index\":{}}"));
            source += text.lines().skip(1).step_by(2).map(|line| line.len() as u64 + 1).sum::<u64>();
        }
        assert_eq!(source, corpus.source_bytes());
        assert!(corpus.bodies[0].bytes < 21_000);
        let part = corpus.beginning(150).unwrap();
        assert!((150..400).contains(&part.spec.docs));
        assert_eq!(part.bodies, corpus.bodies[..part.bodies.len()]);
    }

    #[test]
    fn a_corpus_is_made_once_and_again_for_another_specification() {
        let directory = tempfile::tempdir().unwrap();
        let first = Corpus::open(directory.path(), DocumentKind::HttpLogs, spec(Ids::Generated)).unwrap();
        let path = directory.path().join("http-logs-1000-3.bulk");
        let made = fs::metadata(&path).unwrap().modified().unwrap();
        let second = Corpus::open(directory.path(), DocumentKind::HttpLogs, spec(Ids::Generated)).unwrap();
        assert_eq!(first.bodies, second.bodies);
        assert_eq!(made, fs::metadata(&path).unwrap().modified().unwrap());
        let other = Spec { body_bytes: 10_000, ..spec(Ids::Generated) };
        let third = Corpus::open(directory.path(), DocumentKind::HttpLogs, other).unwrap();
        assert!(third.bodies.len() > first.bodies.len());
        fs::write(&path, b"short").unwrap();
        let other = Spec { body_bytes: 10_000, ..spec(Ids::Generated) };
        assert!(Corpus::open(directory.path(), DocumentKind::HttpLogs, other).is_err());
    }

    #[test]
    fn documents_from_elsewhere_are_a_corpus() {
        let directory = tempfile::tempdir().unwrap();
        let mut builder = Builder::create(&directory.path().join("c"), 100).unwrap();
        for n in 0..20 {
            builder.add(format!("{{\"n\":{n}}}").as_bytes()).unwrap();
        }
        let corpus = builder.finish().unwrap();
        let read = |body: &Body| String::from_utf8(corpus.read(*body).unwrap()).unwrap();
        let all: String = corpus.bodies.iter().map(read).collect();
        assert!(corpus.bodies.len() > 2 && corpus.spec.docs == 20);
        assert_eq!(all.lines().count(), 40);
        assert!(all.ends_with("{\"index\":{}}\n{\"n\":19}\n"), "{all}");
    }

    #[test]
    fn random_ids_stay_in_their_space() {
        let mut out = Vec::new();
        write(&mut out, DocumentKind::HttpLogs, &spec(Ids::Random { space: 10 })).unwrap();
        let text = String::from_utf8(out).unwrap();
        let ids: std::collections::HashSet<&str> = text.lines().step_by(2).collect();
        assert_eq!(ids.len(), 10);
        assert!(ids.contains("{\"index\":{\"_id\":\"7\"}}"));
    }
}
