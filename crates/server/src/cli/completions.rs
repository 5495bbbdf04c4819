//! `countersign completions`: what a shell needs to complete the command line.

use super::{Cli, output};
use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Print completions for a shell
#[derive(Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub fn run(args: &CompletionsArgs) -> anyhow::Result<()> {
    // Into memory first: writing straight to a closed pipe would panic.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "countersign", &mut script);
    output::say_verbatim(String::from_utf8_lossy(&script).trim_end())
}
