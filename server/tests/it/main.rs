//! The binary as a process: what a person or a unit file sees of it.

mod configuration;
mod lifecycle;
mod logs;
mod process;
