//! The store through its public interface.

mod changes;
mod commits;
mod crash;
mod documents;
mod faults;
mod pressure;
mod races;
