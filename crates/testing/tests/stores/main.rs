//! The engine on each store: what the port promises, and what happens when a store is slow, damaged, full or gone.

mod clock;
mod conformance;
mod damage;
mod differential;
mod engine;
mod loading;
mod log;
mod overloaded;
mod purges;
mod quarantine;
mod races;
mod recording_failure;
mod store_audit;
mod store_guard;
