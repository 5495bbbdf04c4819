//! Commits that fail. Each failure comes in two forms, *failed and not persisted* and *failed but persisted*
//! ([`table`]); PostgreSQL loses its connection at any byte of a commit ([`proxy`], [`cuts`]), or its backends
//! under load. Whatever happens, the answer must be right: what was acknowledged is there, and what was said
//! not to be written is not.

mod caller;
mod cuts;
mod proxy;
mod table;

pub use cuts::{a_silent_node_holds_nobody_up, backends_killed_under_load, connection_cut_at_any_byte};
pub use table::every_command_in_both_forms;

/// What the answer says when nothing was written.
const NOTHING_WRITTEN: &str = "nothing was written";
