//! The binary `countersign`. Everything it does stands in [`cli`].

mod cli;

use std::process::ExitCode;

/// A request allocates some hundred times, on whichever thread it is: with the system's allocator that was a quarter of a
/// busy server's time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Fails only when one is installed already, which is just as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    cli::run()
}
