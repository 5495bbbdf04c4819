//! Runs, as far as they are more than what the kernel decides: from rows to a [`countersign_kernel::run::Run`] and back
//! ([`assemble`], [`project`]), what a record says of them ([`payload`]).

pub mod assemble;
