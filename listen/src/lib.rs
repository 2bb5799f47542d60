//! What every listener of the server has in common, whatever it serves: the bounds on what clients may hold.
//!
//! [`Budget`] bounds the bytes that requests keep in memory, over the whole process. [`Bodies`] reads and
//! inflates the bodies of requests against it.

mod body;
mod budget;
mod inflate;

pub use body::{Bodies, BodyError, Held};
pub use budget::{Budget, Exceeded, Reservation};
pub use inflate::{Coding, InflateError, inflate};
