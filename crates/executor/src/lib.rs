//! Carries out the steps that need no worker: [`shell`] runs a process, [`http`] sends a request. Each takes a job with every
//! `${…}` filled in and gives back a [`Verdict`], which is what a worker would have reported, or, as a [`probe`], a value.
//! What it gives back holds no secret that the job's [`mask`] knows.
//!
//! It knows neither the engine nor a store, and it never decides what follows from a verdict. Dropping the future of a job
//! cancels it: no process and no connection is left behind.

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
