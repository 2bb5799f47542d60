//! The Logstash configuration language: text to a [`Definition`], with every fault reported at once.
//!
//! [`parse`] is the way in. `cursor` walks the text and knows lines and columns, `sections` reads
//! sections, plugins and branches, `values` what options are given, `expressions` the conditions of
//! branches, `environment` replaces `${…}`. After a fault the parser looks for the next place where it can
//! tell what was meant, so that one reading shows all faults. The text, its nesting and the number of
//! faults are bounded.

mod cursor;
mod definition;
mod environment;
mod expressions;
mod sections;
#[cfg(test)]
mod tests;
mod values;

pub use definition::{Arm, Branch, Definition, Plugin, Statement};
pub use environment::Environment;

use millrace_ingest::{Fault, Location};

use cursor::Cursor;

/// Longest text of a definition, in bytes.
pub const MAX_BYTES: usize = 4 << 20;
/// Deepest nesting of branches, values and parentheses together.
const MAX_DEPTH: usize = 64;
/// Most faults reported.
const MAX_FAULTS: usize = 100;

/// Context of a text that its meaning depends on.
#[derive(Clone, Debug, Default)]
pub struct Dialect {
    /// Variables that it may refer to.
    pub environment: Environment,
    /// `true` if `\n`, `\r`, `\t`, `\\`, `\"`, `\'` and `\/` in texts stand for characters (`config.support_escapes`).
    pub support_escapes: bool,
}

/// Parses a definition.
///
/// # Errors
/// All faults of the text, by place.
pub fn parse(text: &str, dialect: &Dialect) -> Result<Definition, Vec<Fault>> {
    if text.len() > MAX_BYTES {
        let message =
            format!("the definition is longer than {MAX_BYTES} bytes; split it into several pipelines");
        return Err(vec![Fault { at: Location { line: 1, column: 1 }, message }]);
    }
    let mut parser = Parser { cursor: Cursor::new(text), dialect, faults: Vec::new(), depth: 0 };
    let definition = parser.definition();
    let mut faults = parser.faults;
    if faults.is_empty() {
        return Ok(definition);
    }
    faults.sort_by_key(|fault| fault.at);
    faults.dedup();
    Err(faults)
}

/// The state of a reading.
struct Parser<'t> {
    cursor: Cursor<'t>,
    dialect: &'t Dialect,
    faults: Vec<Fault>,
    depth: usize,
}

/// Something could not be read and its fault is recorded; the reader above looks for the next place to go on.
struct SyntaxRecovery;

impl Parser<'_> {
    fn fault(&mut self, offset: usize, message: impl Into<String>) {
        if self.faults.len() < MAX_FAULTS {
            let at = self.cursor.location(offset);
            self.faults.push(Fault { at, message: message.into() });
        }
    }

    /// Records that something else was expected here.
    fn expected(&mut self, what: &str) -> SyntaxRecovery {
        let offset = self.cursor.offset();
        let found = self.cursor.describe();
        self.fault(offset, format!("expected {what}, found {found}"));
        SyntaxRecovery
    }

    /// Goes one level deeper, within the bound.
    fn deeper<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, SyntaxRecovery>,
    ) -> Result<T, SyntaxRecovery> {
        if self.depth == MAX_DEPTH {
            let offset = self.cursor.offset();
            self.fault(offset, format!("nested deeper than {MAX_DEPTH} levels"));
            // What is so deep is not made sense of: nothing behind it is read.
            self.cursor.end();
            return Err(SyntaxRecovery);
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }
}
