//! From tokens to the tree of a script: functions and statements.

use super::lexer::{Token, TokenKind, tokens};
use super::tree::{Function, Handler, Statement, ValueType};

/// Deepest nesting of statements and expressions.
pub(super) const MAX_DEPTH: usize = 60;
/// Most variables of a function, and of the statements outside of functions.
const MAX_VARIABLES: usize = 500;
/// Most functions of a script.
const MAX_FUNCTIONS: usize = 200;
/// Words that begin no declaration, or stand between two others.
const KEYWORDS: [&str; 16] = [
    "new",
    "return",
    "throw",
    "else",
    "in",
    "instanceof",
    "if",
    "for",
    "while",
    "do",
    "try",
    "catch",
    "break",
    "continue",
    "this",
    "void",
];
/// Classes of exceptions that are thrown, with their kinds.
const EXCEPTIONS: [(&str, &str); 5] = [
    ("Exception", "exception"),
    ("RuntimeException", "runtime_exception"),
    ("IllegalArgumentException", "illegal_argument_exception"),
    ("IllegalStateException", "illegal_state_exception"),
    ("UnsupportedOperationException", "unsupported_operation_exception"),
];

/// Offset and reason of a refusal.
pub(super) type Refusal = (usize, String);
pub(super) type Result<T> = std::result::Result<T, Refusal>;

/// A parsed script.
pub(super) struct ParsedScript {
    pub(super) statements: Vec<Statement>,
    /// Types of the variables outside of functions.
    pub(super) types: Vec<ValueType>,
    pub(super) functions: Vec<Function>,
    pub(super) patterns: usize,
}

/// Parses a script.
pub(super) fn parse(source: &str) -> Result<ParsedScript> {
    let mut parser = Parser {
        tokens: tokens(source)?,
        at: 0,
        depth: 0,
        scopes: vec![Vec::new()],
        types: Vec::new(),
        functions: Vec::new(),
        in_function: false,
        patterns: 0,
    };
    let mut statements = Vec::new();
    while parser.peek() != &TokenKind::End {
        if parser.declares_function() {
            parser.function()?;
        } else {
            statements.push(parser.statement()?);
        }
    }
    let (types, patterns) = (parser.types, parser.patterns);
    let functions = parser.functions.into_iter().map(|call| match call.function {
        Some(function) => Ok(function),
        None => {
            Err((call.offset, format!("Unknown call [{}] with [{}] arguments.", call.name, call.arguments)))
        }
    });
    Ok(ParsedScript { statements, types, functions: functions.collect::<Result<_>>()?, patterns })
}

/// A function that is declared or called.
struct CalledFunction {
    name: String,
    arguments: usize,
    /// Offset of its first call.
    offset: usize,
    function: Option<Function>,
}

pub(super) struct Parser {
    pub(super) tokens: Vec<Token>,
    pub(super) at: usize,
    depth: usize,
    pub(super) scopes: Vec<Vec<(String, usize)>>,
    /// Types of the variables of the function that is parsed.
    types: Vec<ValueType>,
    functions: Vec<CalledFunction>,
    /// Set while a function is parsed: a function does not know `ctx` and `params`.
    pub(super) in_function: bool,
    pub(super) patterns: usize,
}

impl Parser {
    pub(super) fn peek_at(&self, ahead: usize) -> &TokenKind {
        self.tokens.get(self.at + ahead).map_or(&TokenKind::End, |token| &token.kind)
    }

    pub(super) fn peek(&self) -> &TokenKind {
        self.peek_at(0)
    }

    pub(super) fn offset(&self) -> usize {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(0, |token| token.offset)
    }

    pub(super) fn next(&mut self) -> TokenKind {
        let kind = self.peek().clone();
        self.at += 1;
        kind
    }

    pub(super) fn is_symbol(&self, ahead: usize, symbol: &str) -> bool {
        matches!(self.peek_at(ahead), TokenKind::Symbol(found) if *found == symbol)
    }

    pub(super) fn accept(&mut self, symbol: &str) -> bool {
        let found = self.is_symbol(0, symbol);
        self.at += usize::from(found);
        found
    }

    pub(super) fn accept_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), TokenKind::Name(name) if name == word);
        self.at += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, symbol: &str) -> Result<()> {
        if self.accept(symbol) { Ok(()) } else { Err(self.unexpected(&format!("expected [{symbol}]"))) }
    }

    pub(super) fn unexpected(&self, wanted: &str) -> Refusal {
        let reason = match self.peek() {
            TokenKind::End => "unexpected end of script.".to_owned(),
            TokenKind::Name(name) => format!("unexpected token ['{name}']: {wanted}."),
            TokenKind::Symbol(symbol) => format!("unexpected token ['{symbol}']: {wanted}."),
            TokenKind::Text(_) => format!("unexpected string: {wanted}."),
            _ => format!("unexpected number: {wanted}."),
        };
        (self.offset(), reason)
    }

    pub(super) fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == MAX_DEPTH {
            return Err((self.offset(), format!("the script is nested deeper than {MAX_DEPTH} levels")));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// Declares a variable of any type.
    pub(super) fn declare(&mut self, name: String) -> Result<usize> {
        self.declare_typed(name, ValueType::Any)
    }

    fn declare_typed(&mut self, name: String, of: ValueType) -> Result<usize> {
        if self.types.len() == MAX_VARIABLES {
            return Err((self.offset(), format!("a function has more than {MAX_VARIABLES} variables")));
        }
        let is_given = matches!(&*name, "ctx" | "params") && !self.in_function;
        if is_given || self.scopes.iter().flatten().any(|(known, _)| *known == name) {
            return Err((self.offset(), format!("Variable [{name}] is already defined.")));
        }
        let slot = self.types.len();
        self.types.push(of);
        if let Some(scope) = self.scopes.last_mut() {
            scope.push((name, slot));
        }
        Ok(slot)
    }

    fn statement(&mut self) -> Result<Statement> {
        self.nested(Self::statement_within)
    }

    fn statement_within(&mut self) -> Result<Statement> {
        if self.is_symbol(0, "{") {
            return self.block().map(Statement::Block);
        }
        if self.accept(";") {
            return Ok(Statement::Block(Vec::new()));
        }
        let offset = self.offset();
        if let TokenKind::Name(name) = self.peek() {
            match name.as_str() {
                "if" => return self.condition(),
                "while" => return self.while_loop(),
                "for" => return self.for_loop(),
                "return" => {
                    self.at += 1;
                    let value = if self.is_statement_end() { None } else { Some(self.expression()?) };
                    self.expect_statement_end()?;
                    return Ok(Statement::Return(value));
                }
                "break" | "continue" => {
                    let statement = if name == "break" { Statement::Break } else { Statement::Continue };
                    self.at += 1;
                    self.expect_statement_end()?;
                    return Ok(statement);
                }
                "try" => return self.try_statement(),
                "throw" => return self.throw(),
                "do" | "catch" | "switch" | "import" => {
                    return Err((offset, format!("[{name}] is not supported in ingest pipelines")));
                }
                _ => {}
            }
        }
        let statement = self.simple()?;
        self.expect_statement_end()?;
        Ok(statement)
    }

    fn is_statement_end(&self) -> bool {
        self.peek() == &TokenKind::End || self.is_symbol(0, ";") || self.is_symbol(0, "}")
    }

    fn expect_statement_end(&mut self) -> Result<()> {
        if self.accept(";") || self.is_statement_end() {
            return Ok(());
        }
        Err(self.unexpected("expected [;]"))
    }

    pub(super) fn block(&mut self) -> Result<Vec<Statement>> {
        if !self.accept("{") {
            return Ok(vec![self.statement()?]);
        }
        self.scopes.push(Vec::new());
        let mut statements = Vec::new();
        while !self.accept("}") {
            if self.peek() == &TokenKind::End {
                return Err(self.unexpected("expected [}]"));
            }
            statements.push(self.statement()?);
        }
        self.scopes.pop();
        Ok(statements)
    }

    fn try_statement(&mut self) -> Result<Statement> {
        self.at += 1;
        let body = self.block()?;
        let mut handlers = Vec::new();
        while self.accept_word("catch") {
            self.expect("(")?;
            let offset = self.offset();
            let (TokenKind::Name(class), TokenKind::Name(name)) = (self.next(), self.next()) else {
                return Err((offset, "expected a class of exceptions and a name".to_owned()));
            };
            self.expect(")")?;
            if !class.ends_with("Exception") {
                return Err((
                    offset,
                    format!("[catch ({class} {name})] is not supported: catch an Exception"),
                ));
            }
            self.scopes.push(Vec::new());
            let slot = self.declare(name)?;
            let body = self.block()?;
            self.scopes.pop();
            let kinds = exception_kinds(&class);
            handlers.push(Handler { kinds, slot, body });
        }
        match handlers.is_empty() {
            true => Err(self.unexpected("expected [catch]")),
            false => Ok(Statement::Try(body, handlers)),
        }
    }

    fn throw(&mut self) -> Result<Statement> {
        self.at += 1;
        let offset = self.offset();
        let class = match (self.accept_word("new"), self.next()) {
            (true, TokenKind::Name(class)) => class,
            _ => return Err((offset, "[throw] takes [new Exception(message)]".to_owned())),
        };
        let Some((_, kind)) = EXCEPTIONS.iter().find(|(known, _)| *known == class) else {
            return Err((offset, format!("Not a type [{class}]: [throw new {class}] is not supported")));
        };
        let mut arguments = self.arguments()?;
        let message = match (arguments.pop(), arguments.is_empty()) {
            (Some(message), true) => message,
            _ => return Err((offset, format!("[new {class}] takes a message"))),
        };
        self.expect_statement_end()?;
        Ok(Statement::Throw(kind, message))
    }

    /// Returns the number of tokens of the type that stands here: a name, one with a dot, or an array of it. 0: no type.
    fn type_length(&self) -> usize {
        let TokenKind::Name(name) = self.peek() else { return 0 };
        if KEYWORDS.contains(&name.as_str()) {
            return 0;
        }
        let length = match (name.as_str(), self.is_symbol(1, "."), self.peek_at(2)) {
            ("Map", true, TokenKind::Name(inner)) if inner == "Entry" => 3,
            _ => 1,
        };
        match self.is_symbol(length, "[") && self.is_symbol(length + 1, "]") {
            true => length + 2,
            false => length,
        }
    }

    /// Returns whether a declaration stands here: a type and a name.
    pub(super) fn declares(&self) -> bool {
        let length = self.type_length();
        length > 0
            && matches!(self.peek_at(length), TokenKind::Name(name) if !KEYWORDS.contains(&name.as_str()))
    }

    /// Takes a type.
    pub(super) fn declared_type(&mut self) -> Result<ValueType> {
        let (offset, length) = (self.offset(), self.type_length());
        let TokenKind::Name(mut name) = self.peek().clone() else {
            return Err(self.unexpected("expected a type"));
        };
        if self.is_symbol(1, ".") && length >= 3 {
            name.push_str(".Entry");
        }
        let is_array = self.is_symbol(length.saturating_sub(1), "]");
        self.at += length.max(1);
        let found = ValueType::find(&name).ok_or_else(|| (offset, format!("Not a type [{name}].")))?;
        Ok(if is_array { ValueType::List } else { found })
    }

    fn declares_function(&self) -> bool {
        let length = match self.peek() {
            TokenKind::Name(name) if name == "void" => 1,
            _ if self.declares() => self.type_length(),
            _ => return false,
        };
        matches!(self.peek_at(length), TokenKind::Name(_)) && self.is_symbol(length + 1, "(")
    }

    fn function(&mut self) -> Result<()> {
        let result = match self.accept_word("void") {
            true => ValueType::Any,
            false => self.declared_type()?,
        };
        let offset = self.offset();
        let TokenKind::Name(name) = self.next() else { return Err((offset, "expected a name".to_owned())) };
        self.expect("(")?;
        let outer = (std::mem::replace(&mut self.scopes, vec![Vec::new()]), std::mem::take(&mut self.types));
        self.in_function = true;
        let parameters = self.parameters()?;
        let number = self.function_number(&name, parameters, offset)?;
        if !self.is_symbol(0, "{") {
            return Err(self.unexpected("expected [{]"));
        }
        let body = self.block()?;
        let function = Function { name, types: std::mem::replace(&mut self.types, outer.1), result, body };
        self.scopes = outer.0;
        self.in_function = false;
        let Some(declared) = self.functions.get_mut(number) else { return Ok(()) };
        if declared.function.is_some() {
            let reason = format!("Duplicate user functions with name [{}/{parameters}].", function.name);
            return Err((offset, reason));
        }
        declared.function = Some(function);
        Ok(())
    }

    fn parameters(&mut self) -> Result<usize> {
        let mut parameters = 0;
        while !self.accept(")") {
            if parameters > 0 {
                self.expect(",")?;
            }
            let of = self.declared_type()?;
            let TokenKind::Name(name) = self.next() else {
                self.at -= 1;
                return Err(self.unexpected("expected a name"));
            };
            self.declare_typed(name, of)?;
            parameters += 1;
        }
        Ok(parameters)
    }

    /// Returns the number of a function, which may be declared further on.
    pub(super) fn function_number(&mut self, name: &str, arguments: usize, offset: usize) -> Result<usize> {
        let found = |called: &CalledFunction| called.name == name && called.arguments == arguments;
        if let Some(number) = self.functions.iter().position(found) {
            return Ok(number);
        }
        if self.functions.len() == MAX_FUNCTIONS {
            return Err((offset, format!("the script has more than {MAX_FUNCTIONS} functions")));
        }
        self.functions.push(CalledFunction { name: name.to_owned(), arguments, offset, function: None });
        Ok(self.functions.len() - 1)
    }

    fn condition(&mut self) -> Result<Statement> {
        self.at += 1;
        self.expect("(")?;
        let condition = self.expression()?;
        self.expect(")")?;
        let then = self.block()?;
        let otherwise = if self.accept_word("else") { self.block()? } else { Vec::new() };
        Ok(Statement::If(condition, then, otherwise))
    }

    fn while_loop(&mut self) -> Result<Statement> {
        self.at += 1;
        self.expect("(")?;
        let condition = self.expression()?;
        self.expect(")")?;
        Ok(Statement::Loop { init: None, condition: Some(condition), update: None, body: self.block()? })
    }

    fn for_loop(&mut self) -> Result<Statement> {
        self.at += 1;
        self.expect("(")?;
        self.scopes.push(Vec::new());
        let statement = self.for_header();
        self.scopes.pop();
        statement
    }

    fn for_header(&mut self) -> Result<Statement> {
        let typed = if self.declares() { self.type_length() } else { 0 };
        if let TokenKind::Name(name) = self.peek_at(typed).clone()
            && (self.is_symbol(typed + 1, ":")
                || matches!(self.peek_at(typed + 1), TokenKind::Name(word) if word == "in"))
        {
            let of = if typed > 0 { self.declared_type()? } else { ValueType::Any };
            self.at += 2;
            let items = self.expression()?;
            self.expect(")")?;
            let slot = self.declare_typed(name, of)?;
            return Ok(Statement::ForEach(slot, items, self.block()?));
        }
        let init = if self.is_symbol(0, ";") { None } else { Some(Box::new(self.simple()?)) };
        self.expect(";")?;
        let condition = if self.is_symbol(0, ";") { None } else { Some(self.expression()?) };
        self.expect(";")?;
        let update = if self.is_symbol(0, ")") { None } else { Some(self.expression()?) };
        self.expect(")")?;
        Ok(Statement::Loop { init, condition, update, body: self.block()? })
    }

    fn simple(&mut self) -> Result<Statement> {
        if !self.declares() {
            return Ok(Statement::Expression(self.expression()?));
        }
        let of = self.declared_type()?;
        let mut declarations = Vec::new();
        loop {
            let TokenKind::Name(name) = self.next() else {
                self.at -= 1;
                return Err(self.unexpected("expected a name"));
            };
            if self.is_symbol(0, "(") {
                let reason = format!("the function [{name}] must stand outside of blocks and loops");
                return Err((self.offset(), reason));
            }
            let value = if self.accept("=") { Some(self.expression()?) } else { None };
            declarations.push(Statement::Declare(self.declare_typed(name, of)?, value));
            if !self.accept(",") {
                break;
            }
        }
        match declarations.len() {
            1 => Ok(declarations.remove(0)),
            _ => Ok(Statement::Declarations(declarations)),
        }
    }
}

/// Lists the kinds of failures that a class of exceptions takes; `None` for all.
fn exception_kinds(class: &str) -> Option<Vec<String>> {
    let mut kind = String::new();
    for letter in class.chars() {
        if letter.is_ascii_uppercase() && !kind.is_empty() {
            kind.push('_');
        }
        kind.push(letter.to_ascii_lowercase());
    }
    // Classes with the classes below them.
    let below: &[&str] = match class {
        "Exception" | "RuntimeException" => return None,
        "IllegalArgumentException" => &["number_format_exception"],
        "IndexOutOfBoundsException" => &["string_index_out_of_bounds_exception"],
        "DateTimeException" => &["date_time_parse_exception"],
        _ => &[],
    };
    Some(std::iter::once(kind).chain(below.iter().map(|kind| (*kind).to_owned())).collect())
}
