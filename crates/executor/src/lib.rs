//! Carries out the steps that need no worker: [`shell`] runs a process, [`http`] sends a request. Each takes a job
//! with every `${…}` filled in and returns a [`Verdict`], the same report that a worker would send, or, as a
//! [`probe`], a value. The result contains no secret that the job's [`mask`] knows.
//!
//! This crate knows neither the engine nor a store, and it never decides what follows from a verdict. Dropping the
//! future of a job cancels it: no process and no connection remains.

pub mod artifact;
mod filled;
pub mod http;
mod json;
pub mod mask;
pub mod probe;
pub mod shell;
mod text;
mod verdict;

pub use verdict::Verdict;
