//! Runs on each store: limits, leases, schedules, several nodes, runbooks, and the step model against its tables.

mod cells;
mod governance;
mod large;
mod limits;
mod nodes;
mod races;
mod rows;
mod runbooks;
mod schedules;
mod step_model;
mod upkeep;
mod workers;
