//! Commits that fail. Each failure has two forms, *failed and not persisted* and *failed but persisted* ([`table`]).
//! PostgreSQL loses its connection at any byte of a commit ([`proxy`], [`cuts`]), or its backends under load. The
//! answer must always be right: acknowledged work exists, and work that was reported as not written does not.

mod caller;
mod cuts;
mod proxy;
mod table;

pub use cuts::{a_silent_node_holds_nobody_up, backends_killed_under_load, connection_cut_at_any_byte};
pub use table::every_command_in_both_forms;

/// What the answer says when nothing was written.
const NOTHING_WRITTEN: &str = "nothing was written";
