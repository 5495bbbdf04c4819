//! The ledger: its records, the log that they stand in, and the verification of both.

pub mod log;
pub mod records;
pub mod verify;
