//! From tokens to the tree of a script.

use super::lexer::{Token, TokenKind, tokens};
use super::tree::{
    Assignment, Binary, Expression, Link, Literal, Node, Statement, StaticFunction, ValueType,
};

/// Deepest nesting of statements and expressions.
const MAX_DEPTH: usize = 60;
/// Most expressions within one another, members and calls in a row included.
const MAX_HEIGHT: usize = 100;
/// Most variables of a script.
const MAX_VARIABLES: usize = 500;
/// Types that declare variables.
const TYPES: [&str; 18] = [
    "def",
    "int",
    "long",
    "double",
    "float",
    "boolean",
    "byte",
    "short",
    "char",
    "String",
    "Object",
    "List",
    "ArrayList",
    "Map",
    "HashMap",
    "Integer",
    "Long",
    "Double",
];

/// Offset and reason of a refusal.
pub(super) type Refusal = (usize, String);
type Result<T> = std::result::Result<T, Refusal>;

/// Parses a script; returns its statements and the number of its variables.
pub(super) fn parse(source: &str) -> Result<(Vec<Statement>, usize)> {
    let mut parser =
        Parser { tokens: tokens(source)?, at: 0, depth: 0, scopes: vec![Vec::new()], variables: 0 };
    let mut statements = Vec::new();
    while parser.peek() != &TokenKind::End {
        statements.push(parser.statement()?);
    }
    Ok((statements, parser.variables))
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    scopes: Vec<Vec<(String, usize)>>,
    variables: usize,
}

impl Parser {
    fn peek_at(&self, ahead: usize) -> &TokenKind {
        self.tokens.get(self.at + ahead).map_or(&TokenKind::End, |token| &token.kind)
    }

    fn peek(&self) -> &TokenKind {
        self.peek_at(0)
    }

    fn offset(&self) -> usize {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(0, |token| token.offset)
    }

    fn next(&mut self) -> TokenKind {
        let kind = self.peek().clone();
        self.at += 1;
        kind
    }

    fn is_symbol(&self, ahead: usize, symbol: &str) -> bool {
        matches!(self.peek_at(ahead), TokenKind::Symbol(found) if *found == symbol)
    }

    fn accept(&mut self, symbol: &str) -> bool {
        let found = self.is_symbol(0, symbol);
        self.at += usize::from(found);
        found
    }

    fn accept_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), TokenKind::Name(name) if name == word);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, symbol: &str) -> Result<()> {
        if self.accept(symbol) { Ok(()) } else { Err(self.unexpected(&format!("expected [{symbol}]"))) }
    }

    fn unexpected(&self, wanted: &str) -> Refusal {
        let reason = match self.peek() {
            TokenKind::End => "unexpected end of script.".to_owned(),
            TokenKind::Name(name) => format!("unexpected token ['{name}']: {wanted}."),
            TokenKind::Symbol(symbol) => format!("unexpected token ['{symbol}']: {wanted}."),
            TokenKind::Text(_) => format!("unexpected string: {wanted}."),
            _ => format!("unexpected number: {wanted}."),
        };
        (self.offset(), reason)
    }

    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == MAX_DEPTH {
            return Err((self.offset(), format!("the script is nested deeper than {MAX_DEPTH} levels")));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn declare(&mut self, name: String) -> Result<usize> {
        if self.variables == MAX_VARIABLES {
            return Err((self.offset(), format!("the script has more than {MAX_VARIABLES} variables")));
        }
        if self.scopes.iter().flatten().any(|(known, _)| *known == name) || matches!(&*name, "ctx" | "params")
        {
            return Err((self.offset(), format!("Variable [{name}] is already defined.")));
        }
        let slot = self.variables;
        self.variables += 1;
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
                    let value = if self.ends() { None } else { Some(self.expression()?) };
                    self.end()?;
                    return Ok(Statement::Return(value));
                }
                "break" | "continue" => {
                    let breaks = self.accept_word("break") || !self.accept_word("continue");
                    self.end()?;
                    return Ok(if breaks { Statement::Break } else { Statement::Continue });
                }
                "do" | "try" | "throw" | "catch" | "switch" | "import" => {
                    return Err((offset, format!("[{name}] is not supported in ingest pipelines")));
                }
                _ => {}
            }
        }
        let statement = self.simple()?;
        self.end()?;
        Ok(statement)
    }

    fn ends(&self) -> bool {
        self.peek() == &TokenKind::End || self.is_symbol(0, ";") || self.is_symbol(0, "}")
    }

    fn end(&mut self) -> Result<()> {
        if self.accept(";") || self.peek() == &TokenKind::End || self.is_symbol(0, "}") {
            return Ok(());
        }
        Err(self.unexpected("expected [;]"))
    }

    fn block(&mut self) -> Result<Vec<Statement>> {
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
        let typed = usize::from(self.declares());
        if let TokenKind::Name(name) = self.peek_at(typed).clone()
            && (self.is_symbol(typed + 1, ":")
                || matches!(self.peek_at(typed + 1), TokenKind::Name(word) if word == "in"))
        {
            self.at += typed + 2;
            let items = self.expression()?;
            self.expect(")")?;
            let slot = self.declare(name)?;
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

    /// Returns whether a declaration stands here: a type and a name.
    fn declares(&self) -> bool {
        matches!(self.peek(), TokenKind::Name(name) if TYPES.contains(&name.as_str()))
            && (matches!(self.peek_at(1), TokenKind::Name(name) if name != "instanceof")
                || (self.is_symbol(1, "[") && self.is_symbol(2, "]")))
    }

    fn simple(&mut self) -> Result<Statement> {
        if !self.declares() {
            return Ok(Statement::Expression(self.expression()?));
        }
        self.at += 1;
        if self.accept("[") {
            self.expect("]")?;
        }
        let mut declarations = Vec::new();
        loop {
            let TokenKind::Name(name) = self.next() else {
                self.at -= 1;
                return Err(self.unexpected("expected a name"));
            };
            if self.is_symbol(0, "(") {
                let reason = format!("the function [{name}] is not supported: pipelines have no functions");
                return Err((self.offset(), reason));
            }
            let value = if self.accept("=") { Some(self.expression()?) } else { None };
            declarations.push(Statement::Declare(self.declare(name)?, value));
            if !self.accept(",") {
                break;
            }
        }
        match declarations.len() {
            1 => Ok(declarations.remove(0)),
            _ => Ok(Statement::Declarations(declarations)),
        }
    }

    fn expression(&mut self) -> Result<Node> {
        let node = self.nested(Self::assignment)?;
        self.checked(node)
    }

    fn assignment(&mut self) -> Result<Node> {
        let target = self.conditional()?;
        let offset = self.offset();
        let operator = match self.peek() {
            TokenKind::Symbol("=") => Assignment::Set,
            TokenKind::Symbol("+=") => Assignment::Compute(Binary::Add),
            TokenKind::Symbol("-=") => Assignment::Compute(Binary::Subtract),
            TokenKind::Symbol("*=") => Assignment::Compute(Binary::Multiply),
            TokenKind::Symbol("/=") => Assignment::Compute(Binary::Divide),
            TokenKind::Symbol("%=") => Assignment::Compute(Binary::Remainder),
            TokenKind::Symbol(symbol @ ("->" | "::" | "=~" | "==~" | "&" | "|" | "^" | "<<" | ">>")) => {
                return Err((offset, format!("[{symbol}] is not supported in ingest pipelines")));
            }
            _ => return Ok(target),
        };
        if !target.is_assignable() {
            return Err((target.offset, "Left-hand side cannot be assigned a value.".to_owned()));
        }
        self.at += 1;
        let value = self.expression()?;
        Ok(Node::new(offset, Expression::Assign(operator, Box::new(target), Box::new(value))))
    }

    fn conditional(&mut self) -> Result<Node> {
        let condition = self.binary(0)?;
        let offset = self.offset();
        if self.accept("?:") {
            let otherwise = self.expression()?;
            return Ok(Node::new(offset, Expression::Elvis(Box::new(condition), Box::new(otherwise))));
        }
        if !self.accept("?") {
            return Ok(condition);
        }
        let then = self.expression()?;
        self.expect(":")?;
        let otherwise = self.expression()?;
        let choices = (Box::new(condition), Box::new(then), Box::new(otherwise));
        Ok(Node::new(offset, Expression::Conditional(choices.0, choices.1, choices.2)))
    }

    fn binary(&mut self, level: usize) -> Result<Node> {
        const LEVELS: [&[(&str, Binary)]; 6] = [
            &[("||", Binary::Or)],
            &[("&&", Binary::And)],
            &[
                ("==", Binary::Equal),
                ("!=", Binary::NotEqual),
                ("===", Binary::Equal),
                ("!==", Binary::NotEqual),
            ],
            &[
                ("<=", Binary::LessOrEqual),
                (">=", Binary::GreaterOrEqual),
                ("<", Binary::Less),
                (">", Binary::Greater),
            ],
            &[("+", Binary::Add), ("-", Binary::Subtract)],
            &[("*", Binary::Multiply), ("/", Binary::Divide), ("%", Binary::Remainder)],
        ];
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut first = self.binary(level + 1)?;
        let mut links = Vec::new();
        loop {
            let offset = self.offset();
            if level == 3 && links.is_empty() && self.accept_word("instanceof") {
                let of = self.value_type()?;
                first = self.checked(Node::new(offset, Expression::InstanceOf(Box::new(first), of)))?;
                continue;
            }
            let operator = match *self.peek() {
                TokenKind::Symbol(symbol) => operators.iter().find(|(name, _)| *name == symbol),
                _ => None,
            };
            let Some((_, operator)) = operator else { break };
            self.at += 1;
            links.push(Link { offset, operator: *operator, operand: self.binary(level + 1)? });
        }
        match links.first() {
            None => Ok(first),
            Some(link) => {
                let offset = link.offset;
                self.checked(Node::new(offset, Expression::Chain(Box::new(first), links)))
            }
        }
    }

    /// Refuses an expression that is nested too deeply to be evaluated.
    fn checked(&self, node: Node) -> Result<Node> {
        match node.height > MAX_HEIGHT {
            true => Err((node.offset, format!("an expression is nested deeper than {MAX_HEIGHT} levels"))),
            false => Ok(node),
        }
    }

    fn value_type(&mut self) -> Result<ValueType> {
        let offset = self.offset();
        let TokenKind::Name(name) = self.next() else { return Err((offset, "expected a type".to_owned())) };
        ValueType::parse(&name).ok_or_else(|| (offset, format!("Not a type [{name}].")))
    }

    fn unary(&mut self) -> Result<Node> {
        self.nested(Self::unary_within)
    }

    fn unary_within(&mut self) -> Result<Node> {
        let offset = self.offset();
        if self.accept("!") {
            return Ok(Node::new(offset, Expression::Not(Box::new(self.unary()?))));
        }
        if self.accept("-") {
            return Ok(Node::new(offset, Expression::Minus(Box::new(self.unary()?))));
        }
        if self.accept("+") {
            return self.unary();
        }
        for (symbol, delta) in [("++", 1), ("--", -1)] {
            if self.accept(symbol) {
                let target = self.unary()?;
                return self.increment(offset, target, delta, true);
            }
        }
        if self.is_symbol(0, "(")
            && self.is_symbol(2, ")")
            && let TokenKind::Name(name) = self.peek_at(1)
            && let Some(of) = ValueType::parse(name)
        {
            self.at += 3;
            return Ok(Node::new(offset, Expression::Cast(of, Box::new(self.unary()?))));
        }
        let node = self.postfix()?;
        for (symbol, delta) in [("++", 1), ("--", -1)] {
            if self.accept(symbol) {
                return self.increment(offset, node, delta, false);
            }
        }
        Ok(node)
    }

    fn increment(&self, offset: usize, target: Node, delta: i64, prefix: bool) -> Result<Node> {
        if !target.is_assignable() {
            return Err((offset, "Left-hand side cannot be assigned a value.".to_owned()));
        }
        Ok(Node::new(offset, Expression::Increment(Box::new(target), delta, prefix)))
    }

    fn postfix(&mut self) -> Result<Node> {
        let mut node = self.primary()?;
        let mut chain = 0;
        loop {
            chain += 1;
            if chain > MAX_DEPTH {
                return Err((self.offset(), "an expression has too many members in a row".to_owned()));
            }
            let offset = self.offset();
            let null_safe = self.is_symbol(0, "?.");
            if self.accept(".") || self.accept("?.") {
                let name = match self.next() {
                    TokenKind::Name(name) => name,
                    TokenKind::Int(position) => position.to_string(),
                    _ => {
                        self.at -= 1;
                        return Err(self.unexpected("expected a name"));
                    }
                };
                let target = Box::new(node);
                node = match self.is_symbol(0, "(") {
                    true => {
                        let arguments = self.arguments()?;
                        Node::new(offset, Expression::Call { target, name, arguments, null_safe })
                    }
                    false => Node::new(offset, Expression::Member { target, name, null_safe }),
                };
            } else if self.accept("[") {
                let key = self.expression()?;
                self.expect("]")?;
                node = Node::new(offset, Expression::Index(Box::new(node), Box::new(key)));
            } else {
                return Ok(node);
            }
        }
    }

    fn arguments(&mut self) -> Result<Vec<Node>> {
        self.expect("(")?;
        let mut arguments = Vec::new();
        if self.accept(")") {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.expression()?);
            if self.accept(")") {
                return Ok(arguments);
            }
            self.expect(",")?;
        }
    }

    fn primary(&mut self) -> Result<Node> {
        let offset = self.offset();
        let literal = |literal| Ok(Node::new(offset, Expression::Literal(literal)));
        match self.peek().clone() {
            TokenKind::Int(number) => {
                self.at += 1;
                literal(Literal::Int(number))
            }
            TokenKind::Double(number) => {
                self.at += 1;
                literal(Literal::Double(number))
            }
            TokenKind::Text(text) => {
                self.at += 1;
                literal(Literal::Text(text))
            }
            TokenKind::Symbol("(") => {
                self.at += 1;
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            TokenKind::Symbol("[") => self.collection(),
            TokenKind::Symbol("/") => {
                Err((offset, "regular expressions are not supported in ingest pipelines".to_owned()))
            }
            TokenKind::Name(name) => self.name(offset, name),
            _ => Err(self.unexpected("expected an expression")),
        }
    }

    fn collection(&mut self) -> Result<Node> {
        let offset = self.offset();
        self.expect("[")?;
        if self.accept(":") {
            self.expect("]")?;
            return Ok(Node::new(offset, Expression::Map(Vec::new())));
        }
        let (mut items, mut members) = (Vec::new(), Vec::new());
        while !self.accept("]") {
            if !items.is_empty() || !members.is_empty() {
                self.expect(",")?;
            }
            let item = self.expression()?;
            if self.accept(":") {
                members.push((item, self.expression()?));
            } else {
                items.push(item);
            }
        }
        match (items.is_empty(), members.is_empty()) {
            (false, false) => Err((offset, "a list has no keys".to_owned())),
            (true, false) => Ok(Node::new(offset, Expression::Map(members))),
            _ => Ok(Node::new(offset, Expression::List(items))),
        }
    }

    fn name(&mut self, offset: usize, name: String) -> Result<Node> {
        self.at += 1;
        let node = |expression| Ok(Node::new(offset, expression));
        match name.as_str() {
            "true" | "false" => return node(Expression::Literal(Literal::Bool(name == "true"))),
            "null" => return node(Expression::Literal(Literal::Null)),
            "ctx" => return node(Expression::Context),
            "params" => return node(Expression::Params),
            "new" => {
                let TokenKind::Name(class) = self.next() else {
                    self.at -= 1;
                    return Err(self.unexpected("expected a class"));
                };
                let arguments = self.arguments()?;
                return match class.as_str() {
                    "ArrayList" | "HashMap" | "LinkedHashMap" | "HashSet" if arguments.len() < 2 => {
                        let is_map = class.ends_with("Map");
                        node(Expression::New { is_map, source: arguments.into_iter().next().map(Box::new) })
                    }
                    _ => Err((offset, format!("Not a type [{class}]: [new {class}] is not supported"))),
                };
            }
            _ => {}
        }
        if let Some((_, slot)) = self.scopes.iter().flatten().find(|(known, _)| *known == name) {
            return node(Expression::Variable(*slot));
        }
        if self.is_symbol(0, ".")
            && let TokenKind::Name(function) = self.peek_at(1).clone()
            && StaticFunction::is_class(&name)
        {
            let Some(found) = StaticFunction::find(&name, &function) else {
                return Err((offset, format!("[{name}.{function}] is not supported in ingest pipelines")));
            };
            self.at += 2;
            let arguments = if found.is_constant() { Vec::new() } else { self.arguments()? };
            return node(Expression::Static(found, arguments));
        }
        match self.is_symbol(0, "(") {
            true => Err((offset, format!("Unknown call [{name}]."))),
            false => Err((offset, format!("cannot resolve symbol [{name}]"))),
        }
    }
}
