//! Statements: modifiers, `and` and `or`, assignments of several variables, and what ends with `end`.

use super::super::methods;
use super::super::syntax::{Expr, Rescue, Target};
use super::super::token::TokenKind;
use super::{ParseResult, Parser};

/// Makes an expression whose errors have another value.
pub(super) fn rescued(body: Expr, otherwise: Expr) -> Expr {
    let rescue = Rescue { classes: Vec::new(), variable: None, body: otherwise };
    Expr::Begin { body: Box::new(body), rescues: vec![rescue], otherwise: None, ensure: None }
}

impl Parser {
    /// Parses statements until one of the keywords, a closing brace or the end.
    pub(in super::super) fn statements(&mut self, ends: &[&str]) -> ParseResult<Expr> {
        let mut statements = Vec::new();
        loop {
            self.skip_newlines();
            match self.kind() {
                TokenKind::End | TokenKind::Op("}" | ")") => break,
                TokenKind::Keyword(word) if ends.contains(word) => break,
                _ => {}
            }
            statements.push(self.statement()?);
            match self.kind() {
                TokenKind::Newline | TokenKind::End | TokenKind::Op("}" | ")") => {}
                TokenKind::Keyword(word) if ends.contains(word) => {}
                _ => return self.unexpected(),
            }
        }
        Ok(match (statements.pop(), statements.is_empty()) {
            (None, _) => Expr::Nil,
            (Some(only), true) => only,
            (Some(last), false) => {
                statements.push(last);
                Expr::Sequence(statements)
            }
        })
    }

    /// Parses a statement with its modifiers.
    fn statement(&mut self) -> ParseResult<Expr> {
        let mut statement = self.logical()?;
        while let TokenKind::Keyword(word) = self.kind() {
            let word = *word;
            match word {
                "if" | "unless" => {
                    self.next += 1;
                    let condition = Box::new(self.logical()?);
                    let (then, otherwise) = (Box::new(statement), Box::new(Expr::Nil));
                    statement = if word == "if" {
                        Expr::If { condition, then, otherwise }
                    } else {
                        Expr::If { condition, then: otherwise, otherwise: then }
                    };
                }
                "while" | "until" => {
                    self.next += 1;
                    let condition = Box::new(self.logical()?);
                    statement = Expr::While { condition, body: Box::new(statement), until: word == "until" };
                }
                "rescue" => {
                    self.next += 1;
                    let otherwise = self.logical()?;
                    statement = rescued(statement, otherwise);
                }
                _ => break,
            }
        }
        Ok(statement)
    }

    fn logical(&mut self) -> ParseResult<Expr> {
        let mut left = self.many_or_expression()?;
        loop {
            let (is_and, is_or) = (self.is_keyword("and"), self.is_keyword("or"));
            if !is_and && !is_or {
                return Ok(left);
            }
            self.next += 1;
            self.skip_newlines();
            let (first, second) = (Box::new(left), Box::new(self.many_or_expression()?));
            left = if is_and { Expr::And(first, second) } else { Expr::Or(first, second) };
        }
    }

    fn many_or_expression(&mut self) -> ParseResult<Expr> {
        if self.assigns_many() {
            let mut targets = vec![self.many_target()?];
            while self.take_op(",") {
                if self.is_op("=") {
                    break;
                }
                targets.push(self.many_target()?);
            }
            self.expect_op("=")?;
            self.skip_newlines();
            let value = self.right_side(true)?;
            return Ok(Expr::AssignMany(targets, Box::new(value)));
        }
        self.allows_list = true;
        let parsed = self.expression();
        self.allows_list = false;
        parsed
    }

    /// Returns whether the line assigns several variables: there is a comma outside of brackets before its `=`.
    fn assigns_many(&self) -> bool {
        let begins = match self.kind() {
            TokenKind::Name(_) | TokenKind::State(_) => true,
            TokenKind::Op(op) => matches!(*op, "*" | "("),
            _ => false,
        };
        if !begins {
            return false;
        }
        let (mut depth, mut has_comma) = (0_usize, self.is_op("*"));
        for token in self.tokens.get(self.next..).unwrap_or_default() {
            match &token.kind {
                TokenKind::Op("(" | "[") => depth += 1,
                TokenKind::Op(")" | "]") => match depth.checked_sub(1) {
                    Some(less) => depth = less,
                    None => return false,
                },
                TokenKind::Op(",") => has_comma |= depth == 0,
                TokenKind::Op("=") if depth == 0 => return has_comma,
                TokenKind::Name(_) | TokenKind::State(_) | TokenKind::Op("." | "*" | "&.") => {}
                _ if depth > 0 && token.kind != TokenKind::Newline => {}
                _ => return false,
            }
        }
        false
    }

    fn many_target(&mut self) -> ParseResult<Target> {
        if self.take_op("*") {
            let name = matches!(self.kind(), TokenKind::Name(_) | TokenKind::State(_));
            let rest = if name { Some(Box::new(self.many_target()?)) } else { None };
            return Ok(Target::Rest(rest));
        }
        if self.take_op("(") {
            let mut targets = vec![self.many_target()?];
            while self.take_op(",") {
                targets.push(self.many_target()?);
            }
            self.expect_op(")")?;
            return Ok(Target::Nested(targets));
        }
        if let (TokenKind::Name(name), TokenKind::Op("," | "=" | ")")) = (self.kind().clone(), self.ahead(1))
        {
            self.next += 1;
            return Ok(Target::Local(self.declare(&name)));
        }
        let at = self.at();
        let left = self.postfix()?;
        self.target(left, at)
    }

    /// Takes a `then`, which may stand on the next line.
    fn take_then(&mut self) {
        self.skip_newlines();
        self.take_keyword("then");
    }

    /// Parses `if` or `unless` behind its keyword.
    pub(super) fn branch(&mut self, is_unless: bool) -> ParseResult<Expr> {
        let condition = Box::new(self.logical()?);
        self.take_then();
        let then = Box::new(self.statements(&["elsif", "else", "end"])?);
        let otherwise = if self.take_keyword("elsif") {
            return Ok(Expr::If {
                condition,
                then,
                otherwise: Box::new(self.deeper(|parser| parser.branch(false))?),
            });
        } else if self.take_keyword("else") {
            Box::new(self.statements(&["end"])?)
        } else {
            Box::new(Expr::Nil)
        };
        self.expect_keyword("end")?;
        let (then, otherwise) = if is_unless { (otherwise, then) } else { (then, otherwise) };
        Ok(Expr::If { condition, then, otherwise })
    }

    fn loop_condition(&mut self) -> ParseResult<Expr> {
        let outer = std::mem::replace(&mut self.is_loop_condition, true);
        let condition = self.logical();
        self.is_loop_condition = outer;
        condition
    }

    pub(super) fn while_loop(&mut self, until: bool) -> ParseResult<Expr> {
        let condition = Box::new(self.loop_condition()?);
        self.take_keyword("do");
        let body = Box::new(self.statements(&["end"])?);
        self.expect_keyword("end")?;
        Ok(Expr::While { condition, body, until })
    }

    pub(super) fn for_loop(&mut self) -> ParseResult<Expr> {
        let at = self.at();
        let mut targets = Vec::new();
        loop {
            let TokenKind::Name(name) = self.advance() else { return self.unexpected() };
            targets.push(Target::Local(self.declare(&name)));
            if !self.take_op(",") {
                break;
            }
        }
        self.expect_keyword("in")?;
        let over = Box::new(self.loop_condition()?);
        self.take_keyword("do");
        let body = Box::new(self.statements(&["end"])?);
        self.expect_keyword("end")?;
        let target = match targets.pop() {
            Some(only) if targets.is_empty() => only,
            last => Target::Nested(targets.into_iter().chain(last).collect()),
        };
        Ok(Expr::For { target, over, body, at })
    }

    pub(super) fn case(&mut self) -> ParseResult<Expr> {
        let subject =
            if *self.kind() == TokenKind::Newline { None } else { Some(Box::new(self.expression()?)) };
        self.skip_newlines();
        let mut arms = Vec::new();
        while self.take_keyword("when") {
            let mut values = Vec::new();
            loop {
                self.skip_newlines();
                values.push(if self.is_op("*") { self.splat()? } else { self.ternary()? });
                if !self.take_op(",") {
                    break;
                }
            }
            self.take_then();
            arms.push((values, self.statements(&["when", "else", "end"])?));
        }
        let otherwise = if self.take_keyword("else") { self.statements(&["end"])? } else { Expr::Nil };
        self.expect_keyword("end")?;
        Ok(Expr::Case { subject, arms, otherwise: Box::new(otherwise) })
    }

    pub(super) fn begin(&mut self) -> ParseResult<Expr> {
        let body = Box::new(self.statements(&["rescue", "else", "ensure", "end"])?);
        let mut rescues = Vec::new();
        while self.take_keyword("rescue") {
            rescues.push(self.rescue()?);
        }
        let otherwise = if self.take_keyword("else") {
            Some(Box::new(self.statements(&["ensure", "end"])?))
        } else {
            None
        };
        let ensure =
            if self.take_keyword("ensure") { Some(Box::new(self.statements(&["end"])?)) } else { None };
        self.expect_keyword("end")?;
        Ok(Expr::Begin { body, rescues, otherwise, ensure })
    }

    fn rescue(&mut self) -> ParseResult<Rescue> {
        let mut classes = Vec::new();
        while let TokenKind::Constant(_) = self.kind() {
            let at = self.at();
            let path = self.constant_path()?;
            match methods::error_class(&path) {
                Some(class) => classes.push(class),
                None => return self.fault(at, format!("the class of errors [{path}] is not known")),
            }
            if !self.take_op(",") {
                break;
            }
        }
        let variable = if self.take_op("=>") {
            let TokenKind::Name(name) = self.advance() else { return self.unexpected() };
            Some(self.declare(&name))
        } else {
            None
        };
        self.take_then();
        let body = self.statements(&["rescue", "else", "ensure", "end"])?;
        Ok(Rescue { classes, variable, body })
    }
}
