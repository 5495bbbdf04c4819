//! `docs/reference/cli.md`: every command and option, written from clap. `BLESS=1` writes the page.

use super::Cli;
use clap::{Arg, Command, CommandFactory};
use std::fmt::Write;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli.md");

const HEAD: &str = "<!-- Generated from clap: BLESS=1 cargo test -p countersign-server --bin countersign cli::reference -->
# Command line reference

`countersign COMMAND --help` prints the same text. `countersign completions SHELL` prints completions for a shell.

| exit code | meaning |
| --- | --- |
| 0 | the command succeeded |
| 1 | the server refused it, or it failed |
| 2 | the command line is wrong |
| 130 | watching was interrupted |

Data goes to standard output, messages go to standard error. A command that takes an id also takes the beginning of the id, or a subject,
if it names exactly one process or run.
";

fn cell(text: &str) -> String {
    text.trim().replace('|', "\\|").replace("\n\n", "<br>").replace('\n', " ")
}

fn help_of(arg: &Arg) -> String {
    arg.get_long_help().or_else(|| arg.get_help()).map_or_else(String::new, ToString::to_string)
}

/// `--limit N`, `-o, --output FILE`, `INSTANCE`.
fn form(arg: &Arg) -> String {
    let takes_value = arg.get_action().takes_values();
    let names: Vec<&str> = arg.get_value_names().into_iter().flatten().map(|name| name.as_str()).collect();
    let value = names.join(" ");
    if arg.is_positional() {
        return if value.is_empty() { arg.get_id().as_str().to_uppercase() } else { value };
    }
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let mut form: String = short.into_iter().chain(long).collect::<Vec<_>>().join(", ");
    if takes_value {
        form += " ";
        form += if value.is_empty() { "VALUE" } else { &value };
    }
    form
}

/// What clap itself adds to the help of an argument.
fn remarks(arg: &Arg) -> String {
    let mut remarks = String::new();
    let values: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if !values.is_empty() && arg.get_action().takes_values() {
        write!(remarks, " One of {}.", values.join(", ")).expect("a string");
    }
    let defaults: Vec<String> =
        arg.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
    if !defaults.is_empty() && arg.get_action().takes_values() {
        write!(remarks, " Default: {}.", defaults.join(", ")).expect("a string");
    }
    if let Some(variable) = arg.get_env() {
        write!(remarks, " Environment: `{}`.", variable.to_string_lossy()).expect("a string");
    }
    remarks
}

fn table<'a>(args: impl Iterator<Item = &'a Arg>) -> String {
    let mut text = String::new();
    for arg in args {
        if text.is_empty() {
            text += "| argument | meaning |\n| --- | --- |\n";
        }
        let required = if arg.is_required_set() { " Required." } else { "" };
        let mut help = help_of(arg);
        if !help.is_empty() && !help.ends_with('.') {
            help.push('.');
        }
        writeln!(text, "| `{}` | {}{}{} |", cell(&form(arg)), cell(&help), required, cell_remarks(arg))
            .expect("a string");
    }
    text
}

fn cell_remarks(arg: &Arg) -> String {
    remarks(arg).replace('|', "\\|")
}

fn is_own(arg: &Arg) -> bool {
    !arg.is_global_set() && !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version")
}

fn describe(command: &Command, path: &str, text: &mut String) {
    let path = format!("{path} {}", command.get_name());
    let about = command.get_long_about().or_else(|| command.get_about()).map_or_else(String::new, ToString::to_string);
    write!(text, "\n## {}\n\n{}\n", path.trim(), about.trim()).expect("a string");
    if !command.has_subcommands() || command.get_arguments().any(is_own) {
        let usage = command.clone().render_usage().to_string();
        write!(text, "\n    {}\n", usage.trim_start_matches("Usage:").trim()).expect("a string");
        let table = table(command.get_arguments().filter(|arg| is_own(arg)));
        if !table.is_empty() {
            write!(text, "\n{table}").expect("a string");
        }
    }
    if let Some(after) = command.get_after_help() {
        write!(text, "\n{}\n", after.to_string().trim()).expect("a string");
    }
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        describe(sub, &path, text);
    }
}

fn page() -> String {
    let mut cli = Cli::command();
    cli.build();
    let mut text = HEAD.to_owned();
    text += "\n## Options of every command\n\n";
    text += &table(cli.get_arguments().filter(|arg| arg.is_global_set()));
    if let Some(after) = cli.get_after_help() {
        write!(text, "\n{after}\n").expect("a string");
    }
    text += "\n## Commands\n\n| command | |\n| --- | --- |\n";
    let commands = || cli.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help");
    for command in commands() {
        let about = command.get_about().map_or_else(String::new, ToString::to_string);
        writeln!(text, "| [`{0}`](#countersign-{0}) | {1} |", command.get_name(), cell(&about)).expect("a string");
    }
    for command in commands() {
        describe(command, "countersign", &mut text);
    }
    text
}

#[test]
fn the_reference_is_that_of_the_commands() {
    let page = page();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(PAGE, &page).expect("the page is written");
    }
    let written = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        written == page,
        "docs/reference/cli.md is not that of the commands: run this test with BLESS=1 and commit the page"
    );
}

/// A help text says what a command does, beginning with a verb in the imperative, and what every argument is.
#[test]
fn every_command_and_argument_has_a_help_text() {
    fn check(command: &Command, path: &str, without: &mut Vec<String>) {
        let path = format!("{path} {}", command.get_name());
        let about = command.get_about().map_or_else(String::new, ToString::to_string);
        let verb = about.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
        let is_verb = verb.starts_with(|c: char| c.is_uppercase())
            && !verb.ends_with("ing")
            && !["A", "An", "The", "What", "Who", "How"].contains(&verb);
        if !is_verb {
            without.push(format!("{path}: {about:?}"));
        }
        for arg in command.get_arguments().filter(|arg| is_own(arg) && help_of(arg).is_empty()) {
            without.push(format!("{path} {}", form(arg)));
        }
        for sub in command.get_subcommands() {
            check(sub, &path, without);
        }
    }
    let mut without = vec![];
    for command in Cli::command().get_subcommands() {
        check(command, "countersign", &mut without);
    }
    assert!(without.is_empty(), "no help that begins with a verb: {without:#?}");
}
