//! The binary `countersign`. Everything it does stands in [`cli`].

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    // Fails only when one is installed already, which is just as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    cli::run()
}
