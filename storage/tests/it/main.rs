//! The store through its public interface.

mod crash;
mod documents;
mod faults;
