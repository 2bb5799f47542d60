//! The store through its public interface.

mod changes;
mod crash;
mod documents;
mod faults;
mod pressure;
mod races;
