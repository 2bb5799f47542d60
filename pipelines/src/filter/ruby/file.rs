//! Files of scripts: `def register(params)` runs once, `def filter(event)` for each event; both may call other functions of the
//! file and read the constants at its top. Tests behind them are not read.

use super::lexer::Lexer;
use super::parser::{ParseResult, Parser};
use super::syntax::{Expr, Position, Script};
use super::token::TokenKind;

/// Scripts of a file.
#[derive(Debug)]
pub(super) struct ScriptFile {
    /// Body of `register`, with the parameters in its first slot.
    pub(super) register: Option<Script>,
    /// Body of `filter`, with the event in its first slot. Its value is an array of events.
    pub(super) filter: Script,
    /// Sets the constants at the top, before all else.
    pub(super) constants: Script,
}

impl ScriptFile {
    /// Returns its scripts.
    pub(super) fn scripts(&self) -> impl Iterator<Item = &Script> + Clone {
        self.register.iter().chain([&self.filter, &self.constants])
    }

    /// Parses a file.
    ///
    /// # Errors
    /// A fault of a script, or a part that is not supported, with its place.
    pub(super) fn parse(text: &str) -> ParseResult<Self> {
        let tokens = Lexer::tokens(text, Position { line: 1, column: 1 })?;
        let mut parser = Parser::new(tokens, &[]);
        parser.exclude_functions(&["register", "filter", "concurrency"]);
        let (mut register, mut filter): (Option<Script>, Option<Script>) = (None, None);
        let (mut constants, mut slots) = (Vec::new(), 0);
        loop {
            parser.skip_newlines();
            match parser.kind() {
                TokenKind::End => break,
                TokenKind::Name(name) if name == "test" => break,
                TokenKind::Name(name) if name == "require" => parser.skip_line(),
                TokenKind::Constant(name) if parser.begins_constant() => {
                    let name = name.clone();
                    parser.begin_scope(&[]);
                    constants.push(parser.constant_assignment(name)?);
                    slots = slots.max(parser.slots());
                }
                TokenKind::Keyword("def") if parser.begins_function() => {
                    let at = parser.at();
                    parser.advance();
                    parser.function_definition(at)?;
                }
                TokenKind::Keyword("def") => {
                    let at = parser.at();
                    let (name, script) = parser.definition()?;
                    match name.as_str() {
                        "register" if register.is_none() => register = Some(script),
                        "filter" if filter.is_none() => filter = Some(script),
                        // Logstash asks it about instances; here, a script with variables runs for one event at a time.
                        "concurrency" => {}
                        _ => {
                            return parser.fault(
                                at,
                                format!(
                                    "[def {name}] is not supported: a file has register and filter, once each"
                                ),
                            );
                        }
                    }
                }
                _ => {
                    return parser.fault(
                        parser.at(),
                        "a file of scripts has constants, functions, `def register(params)` and `def filter(event)` only",
                    );
                }
            }
        }
        parser.begin_scope(&[]);
        let mut constants = parser.end_scope(Expr::Sequence(constants));
        constants.slots = slots;
        let functions = parser.take_functions();
        let has_state = parser.functions_have_state();
        constants.functions.clone_from(&functions);
        if let Some(register) = &mut register {
            register.functions.clone_from(&functions);
        }
        match filter {
            Some(filter) => Ok(Self {
                register,
                filter: Script { functions, has_state: filter.has_state || has_state, ..filter },
                constants,
            }),
            None => parser.fault(parser.at(), "the file has no `def filter(event)`"),
        }
    }
}

impl Parser {
    fn skip_line(&mut self) {
        while !matches!(self.kind(), TokenKind::Newline | TokenKind::End) {
            self.advance();
        }
    }

    /// Parses a method with one parameter at most; returns its name and its body.
    fn definition(&mut self) -> ParseResult<(String, Script)> {
        self.expect_keyword("def")?;
        let TokenKind::Name(name) = self.advance() else { return self.unexpected() };
        let has_parentheses = self.take_op("(");
        let mut parameters = Vec::new();
        if let TokenKind::Name(parameter) = self.kind().clone() {
            self.advance();
            parameters.push(parameter);
        }
        if has_parentheses {
            self.expect_op(")")?;
        }
        let parameters: Vec<&str> = parameters.iter().map(String::as_str).collect();
        self.begin_scope(&parameters);
        let body = self.statements(&["end"])?;
        self.expect_keyword("end")?;
        Ok((name, self.end_scope(body)))
    }
}
