//! Tokens to syntax trees.
//!
//! A parser knows the local variables of its scope, which have numbered slots, and refuses methods, functions and constants that
//! the interpreter does not have, by their names and places.

mod functions;
mod primary;
mod statements;

use std::sync::Arc;

use super::lexer::Lexer;
use super::methods;
use super::syntax::{
    AssignOp, Call, Expr, Function, Globals, Position, Script, SyntaxFault, Target, TextItem,
};
use super::token::{Token, TokenKind, TokenText};

/// Deepest nesting of a script.
const MAX_DEPTH: usize = 64;
/// Most operators and calls that stand in a row, each on the result of the one before.
const MAX_LINKS: usize = 500;

pub(super) type ParseResult<T> = Result<T, SyntaxFault>;

pub(super) struct Parser {
    tokens: Vec<Token>,
    next: usize,
    /// Variables by scope, the innermost last.
    scopes: Vec<Vec<(String, usize)>>,
    slots: usize,
    has_state: bool,
    globals: Globals,
    /// Names of the functions that the script defines, and those that are parsed.
    functions: Vec<(String, Option<Arc<Function>>)>,
    is_in_function: bool,
    functions_have_state: bool,
    /// Constants that a file of scripts sets.
    constants: Vec<String>,
    depth: usize,
    /// Links in a row of what was parsed last; an upper bound.
    height: usize,
    /// `true` within a condition of a loop, where `do` begins its body.
    is_loop_condition: bool,
    /// `true` where an assignment begins a statement, and may have a list behind it.
    allows_list: bool,
    /// `&:name` among the arguments that are parsed.
    block_method: Option<(String, Position)>,
}

/// Parses a script.
///
/// # Errors
/// A fault of the script, or a part that is not supported, with its place.
pub(super) fn parse(text: &str) -> ParseResult<Script> {
    parse_with(text, &[])
}

/// Parses a script that finds values in these variables: the first slots, in order.
///
/// # Errors
/// As [`parse`].
pub(super) fn parse_with(text: &str, variables: &[&str]) -> ParseResult<Script> {
    let tokens = Lexer::tokens(text, Position { line: 1, column: 1 })?;
    let mut parser = Parser::new(tokens, variables);
    let body = parser.statements(&[])?;
    parser.expect_end()?;
    let mut script = parser.end_scope(body);
    script.functions = parser.take_functions();
    Ok(script)
}

impl Parser {
    /// Begins with the variables of the first slots.
    pub(super) fn new(tokens: Vec<Token>, variables: &[&str]) -> Self {
        let mut parser = Self {
            tokens,
            next: 0,
            scopes: Vec::new(),
            slots: 0,
            has_state: false,
            globals: Globals::default(),
            functions: Vec::new(),
            is_in_function: false,
            functions_have_state: false,
            constants: Vec::new(),
            depth: 0,
            height: 0,
            is_loop_condition: false,
            allows_list: false,
            block_method: None,
        };
        parser.begin_scope(variables);
        parser.name_functions();
        parser
    }

    /// Begins a script of its own, with the variables of the first slots.
    pub(super) fn begin_scope(&mut self, variables: &[&str]) {
        let first = variables.iter().enumerate().map(|(slot, name)| ((*name).to_owned(), slot));
        self.scopes = vec![first.collect()];
        self.slots = variables.len();
        self.has_state = false;
    }

    /// Makes the script of its statements.
    pub(super) fn end_scope(&mut self, body: Expr) -> Script {
        let globals = std::mem::take(&mut self.globals);
        Script { body, slots: self.slots, has_state: self.has_state, globals, functions: Vec::new() }
    }

    fn token(&self) -> &Token {
        self.tokens.get(self.next).or_else(|| self.tokens.last()).expect("the last token is the end")
    }

    pub(super) fn kind(&self) -> &TokenKind {
        &self.token().kind
    }

    fn ahead(&self, count: usize) -> &TokenKind {
        self.tokens.get(self.next + count).map_or(&TokenKind::End, |token| &token.kind)
    }

    pub(super) fn at(&self) -> Position {
        self.token().at
    }

    pub(super) fn advance(&mut self) -> TokenKind {
        let kind = self.kind().clone();
        if kind != TokenKind::End {
            self.next += 1;
        }
        kind
    }

    pub(super) fn fault<T>(&self, at: Position, message: impl Into<String>) -> ParseResult<T> {
        Err(SyntaxFault { at, message: message.into() })
    }

    pub(super) fn unexpected<T>(&self) -> ParseResult<T> {
        let what = match self.kind() {
            TokenKind::End => "the end of the script".to_owned(),
            TokenKind::Newline => "the end of the line".to_owned(),
            TokenKind::Keyword(word) | TokenKind::Op(word) => format!("[{word}]"),
            TokenKind::Name(name) | TokenKind::Constant(name) | TokenKind::State(name) => format!("[{name}]"),
            TokenKind::Label(name) => format!("[{name}:]"),
            _ => "this literal".to_owned(),
        };
        self.fault(self.at(), format!("{what} is not expected here"))
    }

    fn is_op(&self, op: &str) -> bool {
        matches!(self.kind(), TokenKind::Op(have) if *have == op)
    }

    fn is_keyword(&self, word: &str) -> bool {
        matches!(self.kind(), TokenKind::Keyword(have) if *have == word)
    }

    pub(super) fn take_op(&mut self, op: &str) -> bool {
        let taken = self.is_op(op);
        self.next += usize::from(taken);
        taken
    }

    fn take_keyword(&mut self, word: &str) -> bool {
        let taken = self.is_keyword(word);
        self.next += usize::from(taken);
        taken
    }

    pub(super) fn expect_op(&mut self, op: &str) -> ParseResult<()> {
        if self.take_op(op) { Ok(()) } else { self.unexpected() }
    }

    pub(super) fn expect_keyword(&mut self, word: &str) -> ParseResult<()> {
        if self.take_keyword(word) { Ok(()) } else { self.unexpected() }
    }

    pub(super) fn skip_newlines(&mut self) {
        while *self.kind() == TokenKind::Newline {
            self.next += 1;
        }
    }

    fn expect_end(&mut self) -> ParseResult<()> {
        self.skip_newlines();
        if *self.kind() == TokenKind::End { Ok(()) } else { self.unexpected() }
    }

    /// Runs a part of the parser one level deeper.
    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> ParseResult<T>) -> ParseResult<T> {
        if self.depth >= MAX_DEPTH {
            return self.fault(self.at(), format!("the script is nested more than {MAX_DEPTH} levels deep"));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// Counts a link: an operation on something of a height, and on what was parsed since.
    fn link(&mut self, height: usize) -> ParseResult<()> {
        self.height = self.height.max(height) + 1;
        if self.height > MAX_LINKS {
            return self.fault(self.at(), format!("more than {MAX_LINKS} operators or calls stand in a row"));
        }
        Ok(())
    }

    fn local(&self, name: &str) -> Option<usize> {
        self.scopes
            .iter()
            .rev()
            .find_map(|scope| scope.iter().find(|(have, _)| have == name).map(|(_, slot)| *slot))
    }

    fn declare(&mut self, name: &str) -> usize {
        self.local(name).unwrap_or_else(|| self.declare_own(name))
    }

    /// Declares a variable of the innermost scope, also where an outer one has the name.
    fn declare_own(&mut self, name: &str) -> usize {
        let slot = self.slots;
        self.slots += 1;
        if let Some(scope) = self.scopes.last_mut() {
            scope.push((name.to_owned(), slot));
        }
        slot
    }

    fn state(&mut self, name: &str, at: Position) -> Arc<str> {
        self.has_state = true;
        let name: Arc<str> = Arc::from(name);
        if name.starts_with('$') {
            self.globals.named.push((Arc::clone(&name), at));
        }
        name
    }

    /// Parses an expression that may assign.
    fn expression(&mut self) -> ParseResult<Expr> {
        self.deeper(Self::assignment)
    }

    fn assignment(&mut self) -> ParseResult<Expr> {
        let allows_list = std::mem::take(&mut self.allows_list);
        if self.is_keyword("not") {
            self.next += 1;
            return Ok(Expr::Not(Box::new(self.expression()?)));
        }
        let left = self.ternary()?;
        let at = self.at();
        let TokenKind::Op(op) = self.kind() else { return Ok(left) };
        let op = *op;
        if op == "=" {
            let target = self.target(left, at)?;
            self.next += 1;
            self.skip_newlines();
            return Ok(Expr::Assign(target, Box::new(self.right_side(allows_list)?)));
        }
        let is_comparison = matches!(op, "==" | "!=" | ">=" | "<=" | "===" | "=>");
        match op.strip_suffix('=').filter(|_| !is_comparison) {
            None | Some("") => Ok(left),
            Some(operator) => {
                let target = self.target(left, at)?;
                self.next += 1;
                self.skip_newlines();
                let op = match operator {
                    "||" => AssignOp::Or,
                    "&&" => AssignOp::And,
                    other => AssignOp::Method(self.method(other, at)?),
                };
                let value = Box::new(self.right_side(allows_list)?);
                Ok(Expr::AssignOp { target, op, value, at })
            }
        }
    }

    /// Parses what is assigned: one value, or several, which make an array.
    fn right_side(&mut self, allows_list: bool) -> ParseResult<Expr> {
        let first = if self.is_op("*") { self.splat()? } else { self.expression()? };
        let first = if self.take_keyword("rescue") {
            let otherwise = self.expression()?;
            statements::rescued(first, otherwise)
        } else {
            first
        };
        if !allows_list || !self.is_op(",") {
            return Ok(match first {
                splat @ Expr::Splat(_) => Expr::Array(vec![splat]),
                single => single,
            });
        }
        let mut elements = vec![first];
        while self.take_op(",") {
            self.skip_newlines();
            elements.push(if self.is_op("*") { self.splat()? } else { self.expression()? });
        }
        Ok(Expr::Array(elements))
    }

    fn splat(&mut self) -> ParseResult<Expr> {
        self.expect_op("*")?;
        Ok(Expr::Splat(Box::new(self.ternary()?)))
    }

    /// Makes the destination of an assignment of what stands before it.
    fn target(&mut self, left: Expr, at: Position) -> ParseResult<Target> {
        match left {
            Expr::Local(slot) => Ok(Target::Local(slot)),
            Expr::State(name) => {
                if name.starts_with('$') {
                    self.globals.assigned.insert(Arc::clone(&name));
                }
                Ok(Target::State(name))
            }
            Expr::Call(call) => match *call {
                Call { receiver: Some(receiver), name: "[]", args, block: None, at, .. } => {
                    Ok(Target::Element { receiver: Box::new(receiver), index: args, at })
                }
                Call { receiver: Some(receiver), name, args, block: None, at, .. } if args.is_empty() => {
                    let name = self.method(&format!("{name}="), at)?;
                    Ok(Target::Attribute { receiver: Box::new(receiver), name, at })
                }
                _ => self.fault(at, "nothing can be assigned to this"),
            },
            _ => self.fault(at, "nothing can be assigned to this"),
        }
    }

    fn ternary(&mut self) -> ParseResult<Expr> {
        let condition = self.binary(1)?;
        if !self.is_op("?") {
            return Ok(condition);
        }
        self.next += 1;
        self.skip_newlines();
        let then = self.expression()?;
        self.skip_newlines();
        self.expect_op(":")?;
        self.skip_newlines();
        let otherwise = self.expression()?;
        Ok(Expr::If { condition: Box::new(condition), then: Box::new(then), otherwise: Box::new(otherwise) })
    }

    /// Parses operators that bind at least so tightly.
    fn binary(&mut self, least: u8) -> ParseResult<Expr> {
        self.deeper(|parser| {
            let outer = std::mem::take(&mut parser.height);
            let mut left = parser.unary()?;
            while let TokenKind::Op(op) = parser.kind() {
                let op = *op;
                let Some(tightness) = tightness(op).filter(|tightness| *tightness >= least) else { break };
                let at = parser.at();
                parser.next += 1;
                if tightness == 1 && parser.ends_range() {
                    left = Expr::Range { from: Some(Box::new(left)), to: None, exclusive: op == "..." };
                    continue;
                }
                parser.skip_newlines();
                let height = std::mem::take(&mut parser.height);
                // `**` binds to the right.
                let right = parser.binary(if op == "**" { tightness } else { tightness + 1 })?;
                left = parser.operation(op, left, right, at)?;
                parser.link(height)?;
            }
            parser.height = parser.height.max(outer);
            Ok(left)
        })
    }

    fn ends_range(&self) -> bool {
        matches!(
            self.kind(),
            TokenKind::Op(")" | "]" | ",")
                | TokenKind::Newline
                | TokenKind::End
                | TokenKind::Keyword("then" | "do")
        )
    }

    fn operation(&mut self, op: &'static str, left: Expr, right: Expr, at: Position) -> ParseResult<Expr> {
        let (left, right) = (Box::new(left), Box::new(right));
        Ok(match op {
            "&&" => Expr::And(left, right),
            "||" => Expr::Or(left, right),
            ".." | "..." => Expr::Range { from: Some(left), to: Some(right), exclusive: op == "..." },
            "!=" => Expr::Not(Box::new(self.call(Some(*left), "==", vec![*right], at)?)),
            "!~" => Expr::Not(Box::new(self.call(Some(*left), "=~", vec![*right], at)?)),
            other => self.call(Some(*left), other, vec![*right], at)?,
        })
    }

    fn call(&self, receiver: Option<Expr>, name: &str, args: Vec<Expr>, at: Position) -> ParseResult<Expr> {
        let name = self.method(name, at)?;
        Ok(Expr::Call(Box::new(Call { receiver, name, args, block: None, safe: false, at })))
    }

    /// Finds a method by its name.
    fn method(&self, name: &str, at: Position) -> ParseResult<&'static str> {
        match methods::find(name) {
            Some(name) => Ok(name),
            None => {
                let suggestion = millrace_ingest::options::suggest(name, methods::all());
                self.fault(at, format!("the method [{name}] is not supported{suggestion}"))
            }
        }
    }

    fn unary(&mut self) -> ParseResult<Expr> {
        let at = self.at();
        let TokenKind::Op(op) = self.kind() else { return self.postfix() };
        match *op {
            "!" => {
                self.next += 1;
                Ok(Expr::Not(Box::new(self.deeper(Self::unary)?)))
            }
            "-" => {
                self.next += 1;
                let is_literal = !self.token().spaced;
                match self.kind() {
                    TokenKind::Int(number) if is_literal && !matches!(self.ahead(1), TokenKind::Op("**")) => {
                        let number = Expr::Int(-*number);
                        self.next += 1;
                        self.postfix_of(number)
                    }
                    TokenKind::Float(number)
                        if is_literal && !matches!(self.ahead(1), TokenKind::Op("**")) =>
                    {
                        let number = Expr::Float(-*number);
                        self.next += 1;
                        self.postfix_of(number)
                    }
                    _ => {
                        let operand = self.binary(11)?;
                        self.call(Some(operand), "-@", Vec::new(), at)
                    }
                }
            }
            "+" => {
                self.next += 1;
                self.deeper(Self::unary)
            }
            ".." | "..." => {
                let exclusive = self.is_op("...");
                self.next += 1;
                let to = self.binary(2)?;
                Ok(Expr::Range { from: None, to: Some(Box::new(to)), exclusive })
            }
            "*" => self.splat(),
            _ => self.postfix(),
        }
    }

    /// Makes the items of a text of those of its token.
    fn text_items(&mut self, items: Vec<TokenText>) -> ParseResult<Vec<TextItem>> {
        let mut made = Vec::with_capacity(items.len());
        for item in items {
            made.push(match item {
                TokenText::Literal(text) => TextItem::Literal(Arc::from(text)),
                TokenText::Code(code, at) => {
                    // The code has the variables of the script, and tokens of its own.
                    let tokens = Lexer::tokens(&code, at)?;
                    let (outer, next) = (std::mem::replace(&mut self.tokens, tokens), self.next);
                    self.next = 0;
                    let parsed = self.deeper(|parser| {
                        let body = parser.statements(&[])?;
                        parser.expect_end()?;
                        Ok(body)
                    });
                    self.tokens = outer;
                    self.next = next;
                    TextItem::Interpolated(parsed?)
                }
            });
        }
        Ok(made)
    }
}

/// Returns how tightly an operator binds.
fn tightness(op: &str) -> Option<u8> {
    Some(match op {
        ".." | "..." => 1,
        "||" => 2,
        "&&" => 3,
        "<=>" | "==" | "===" | "!=" | "=~" | "!~" => 4,
        "<" | "<=" | ">" | ">=" => 5,
        "|" | "^" => 6,
        "&" => 7,
        "<<" | ">>" => 8,
        "+" | "-" => 9,
        "*" | "/" | "%" => 10,
        "**" => 12,
        _ => return None,
    })
}
