//! State that clients come back to: tickets of answers, and handles of prepared statements.
//!
//! Both are sealed: a key that is made at the start authenticates them together with who got them, so that nothing that somebody
//! else got, or made up, or changed, is taken. They say what they stand for, so that nothing is kept for a ticket.

use std::time::Duration;

use arrow_flight::sql::{Any, Command, ProstMessageExt, TicketStatementQuery};
use bytes::{BufMut, Bytes, BytesMut};
use millrace_catalog::access::{Caller, Principal};
use prost::Message;
use ring::{digest, hmac};
use tonic::Status;

/// Time for which a ticket counts.
pub(crate) const LIFE: Duration = Duration::from_secs(600);

/// Bytes of the authentication at the end.
const MAC_BYTES: usize = 32;
/// Bytes before the text: kind, id, end, schema.
const HEAD_BYTES: usize = 1 + 16 + 8 + 16;

/// Names a ticket or a prepared statement.
pub(crate) type Id = [u8; 16];
/// Tells schemas apart.
pub(crate) type Fingerprint = [u8; 16];

/// Owner of a ticket or handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Owner([u8; 32]);

impl Owner {
    /// Returns the owner that stands for a caller: a user, or an API key of one.
    pub(crate) fn new(principal: &Principal) -> Self {
        Self::of_caller(principal.caller())
    }

    fn of_caller(caller: &Caller) -> Self {
        let (kind, name): (&[u8], &str) = match caller {
            Caller::User(name) => (b"user", name),
            Caller::ApiKey { id, .. } => (b"key", id),
            Caller::Pipeline(name) => (b"pipeline", name),
            Caller::Rule(name) => (b"rule", name),
            Caller::System => (b"system", ""),
        };
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(kind);
        context.update(&[0]);
        context.update(name.as_bytes());
        let mut owner = [0; 32];
        owner.copy_from_slice(context.finish().as_ref());
        Self(owner)
    }
}

/// User whose bounds something counts against, with all of its API keys. Tickets and handles of one user belong to no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct User(Owner);

impl User {
    /// Returns the user of a caller, or the one that owns an API key.
    pub(crate) fn new(principal: &Principal) -> Self {
        Self(Owner::of_caller(&principal.caller().bounded_as()))
    }
}

/// Kind of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The answer to a statement, which is its text.
    Statement,
    /// The count of a statement that deletes, which is its text.
    Update,
    /// The answer to a prepared statement: its id and the number of its bindings.
    Prepared,
    /// Metadata: the command.
    Listing,
    /// A prepared statement itself, of this id.
    Handle,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Statement, Self::Update, Self::Prepared, Self::Listing, Self::Handle];

    fn byte(self) -> u8 {
        match self {
            Self::Statement => 1,
            Self::Update => 2,
            Self::Prepared => 3,
            Self::Listing => 4,
            Self::Handle => 5,
        }
    }
}

/// A ticket, opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) kind: Kind,
    pub(crate) id: Id,
    /// Time at which it ends.
    pub(crate) ends_ms: i64,
    /// The schema that was told with it.
    pub(crate) schema: Fingerprint,
    pub(crate) body: Bytes,
}

impl Ticket {
    /// Makes a ticket that counts from now on.
    pub(crate) fn new(kind: Kind, schema: Fingerprint, body: impl Into<Bytes>, now_ms: i64) -> Self {
        let life = i64::try_from(LIFE.as_millis()).unwrap_or(i64::MAX);
        Self { kind, id: rand::random(), ends_ms: now_ms.saturating_add(life), schema, body: body.into() }
    }
}

/// Seals and opens tickets, with a key of this start.
pub(crate) struct Seals(hmac::Key);

impl std::fmt::Debug for Seals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seals").finish_non_exhaustive()
    }
}

impl Seals {
    /// Makes a key.
    pub(crate) fn new() -> Self {
        Self::with_key(&rand::random())
    }

    fn with_key(key: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// Writes a ticket for its owner.
    pub(crate) fn seal(&self, owner: &Owner, ticket: &Ticket) -> Bytes {
        let mut bytes = BytesMut::with_capacity(HEAD_BYTES + ticket.body.len() + MAC_BYTES);
        bytes.put_u8(ticket.kind.byte());
        bytes.put_slice(&ticket.id);
        bytes.put_i64(ticket.ends_ms);
        bytes.put_slice(&ticket.schema);
        bytes.put_slice(&ticket.body);
        let mac = self.sign(owner, &bytes);
        bytes.put_slice(mac.as_ref());
        bytes.freeze()
    }

    /// Reads a ticket that its owner shows.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for one that was not sealed here for this owner; `NOT_FOUND` for one whose time is over.
    pub(crate) fn open(&self, owner: &Owner, bytes: &Bytes, now_ms: i64) -> Result<Ticket, Status> {
        let ticket = self.read(owner, bytes).ok_or_else(unknown)?;
        if ticket.ends_ms <= now_ms {
            return Err(Status::not_found("the ticket has expired: ask for the statement's info anew"));
        }
        Ok(ticket)
    }

    /// Reads a ticket whose time may be over.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for one that was not sealed here for this owner.
    pub(crate) fn open_any(&self, owner: &Owner, bytes: &Bytes) -> Result<Ticket, Status> {
        self.read(owner, bytes).filter(|ticket| ticket.kind != Kind::Handle).ok_or_else(unknown)
    }

    /// Reads the handle of a prepared statement, which counts for as long as the statement is kept.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for one that was not sealed here for this owner.
    pub(crate) fn open_handle(&self, owner: &Owner, bytes: &Bytes) -> Result<Ticket, Status> {
        self.read(owner, bytes).filter(|ticket| ticket.kind == Kind::Handle).ok_or_else(unknown)
    }

    fn read(&self, owner: &Owner, bytes: &Bytes) -> Option<Ticket> {
        let signed = bytes.len().checked_sub(MAC_BYTES).filter(|signed| *signed >= HEAD_BYTES)?;
        let (text, mac) = bytes.split_at(signed);
        let mut all = Vec::with_capacity(owner.0.len() + text.len());
        all.extend_from_slice(&owner.0);
        all.extend_from_slice(text);
        hmac::verify(&self.0, &all, mac).ok()?;
        let kind = Kind::ALL.into_iter().find(|kind| Some(&kind.byte()) == text.first())?;
        Some(Ticket {
            kind,
            id: text.get(1..17)?.try_into().ok()?,
            ends_ms: i64::from_be_bytes(text.get(17..25)?.try_into().ok()?),
            schema: text.get(25..HEAD_BYTES)?.try_into().ok()?,
            body: bytes.slice(HEAD_BYTES..signed),
        })
    }

    fn sign(&self, owner: &Owner, text: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(&owner.0);
        context.update(text);
        context.sign()
    }
}

/// Writes a sealed ticket as clients of Flight SQL know it.
pub(crate) fn wrapped(sealed: Bytes) -> Bytes {
    TicketStatementQuery { statement_handle: sealed }.as_any().encode_to_vec().into()
}

/// Reads what [`wrapped`] has written, and no other spelling of that.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub(crate) fn unwrapped(bytes: &Bytes) -> Result<Bytes, Status> {
    match Any::decode(bytes.clone()).ok().map(Command::try_from) {
        Some(Ok(Command::TicketStatementQuery(ticket))) if ticket.as_any().encode_to_vec() == *bytes => {
            Ok(ticket.statement_handle)
        }
        _ => Err(unknown()),
    }
}

fn unknown() -> Status {
    Status::invalid_argument(
        "the ticket or handle is not one that this server gave to this caller since its start: ask for the statement's \
         info, or prepare it, anew",
    )
}

/// Returns the fingerprint of a schema, of its encoded form.
pub(crate) fn fingerprint(encoded: &[u8]) -> Fingerprint {
    let mut fingerprint = [0; 16];
    let digest = digest::digest(&digest::SHA256, encoded);
    fingerprint.copy_from_slice(&digest.as_ref()[..16]);
    fingerprint
}

#[cfg(test)]
mod tests;
