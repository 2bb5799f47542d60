//! Calls of functions that a script defines, within the bound of the stack.

use super::super::methods;
use super::super::syntax::{Expr, Position};
use super::super::value::{RaisedError, Val};
use super::{Evaluated, Flow, Interpreter};

/// Most expressions that wait for one another within functions: each takes a part of the stack.
const MAX_NESTING: usize = 250;

impl Interpreter<'_> {
    /// Evaluates an expression.
    pub(in super::super) fn eval(&mut self, expr: &Expr) -> Evaluated {
        if self.calls > 0 && self.nesting >= MAX_NESTING {
            return Err(Flow::Exceeded("functions of the script call one another too deep".to_owned()));
        }
        self.nesting += 1;
        let value = self.evaluate(expr);
        self.nesting -= 1;
        value
    }

    /// Calls a function of the script.
    pub(super) fn call_function(&mut self, number: usize, args: Vec<Val>, at: Position) -> Evaluated {
        let Some(Some(function)) = self.functions.get(number).cloned() else {
            let message = format!("undefined function at {at}");
            return Err(RaisedError::new(methods::NO_METHOD, message).into());
        };
        if args.len() != function.parameters {
            return Err(RaisedError::argument(format!(
                "[{}] has {} parameters, and is called with {} arguments at {at}",
                function.name,
                function.parameters,
                args.len()
            ))
            .into());
        }
        self.step(function.slots)?;
        let mut slots = args;
        slots.resize(function.slots, Val::Nil);
        let outer = std::mem::replace(&mut self.slots, slots);
        self.calls += 1;
        let value = self.eval(&function.body);
        self.calls -= 1;
        self.returned.append(&mut std::mem::replace(&mut self.slots, outer));
        match value {
            Err(Flow::Return(value) | Flow::Next(value) | Flow::Break(value)) => Ok(value),
            other => other,
        }
    }
}
