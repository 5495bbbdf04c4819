//! Runs, as far as they are more than what the kernel decides: from rows to a [`countersign_kernel::run::Run`] and back
//! ([`assemble`], [`project`]), what a record says of them ([`payload`]), what is to be done when ([`agenda`], [`clockwork`]), leases that end under somebody at work ([`leases`]), parents and their children ([`children`]), what views are made of ([`records`]),
//! and what callers are offered ([`service`]).

pub mod agenda;
pub mod assemble;
pub mod bell;
pub mod cells;
pub mod children;
pub mod clockwork;
mod continued;
pub mod dispatcher;
pub mod door;
pub mod emit;
pub mod history;
pub mod leases;
pub mod payload;
pub mod project;
mod queue;
pub mod records;
pub mod rollup;
pub mod runbook;
pub mod service;
