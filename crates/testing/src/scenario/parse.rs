//! The text of a scenario to its lines. Every complaint names file and line. What a name stands for
//! (a declaration, a process) is looked up here, so that a misspelt one never passes for an expectation.

use super::words::{Word, split};
use super::{
    Act, Check, Expected, HistoryLine, Line, NOWHERE, REGISTRY, RecordName, Scenario, StepName, Target, What,
    retention, runs,
};
use crate::drive::{Source, Start};
use countersign_kernel::gate_spec::{GateEntry, GateSpec, QuorumRule};
use countersign_kernel::process::Decision;
use countersign_kernel::refusal::Code;
use countersign_kernel::{Declaration, Transition};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// `shipped` gives the text of a definition that the repository ships.
pub fn parse(file: &str, text: &str, shipped: impl Fn(&str) -> Option<String>) -> Result<Scenario, String> {
    let mut parser = Parser { shipped: &shipped, ..Parser::default() };
    let mut lines = vec![];
    let mut source = text.lines().enumerate().map(|(i, line)| (i + 1, line)).peekable();
    while let Some((number, line)) = source.next() {
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        let at = |message: String| format!("{file}:{number}: {message}");
        if line.starts_with(char::is_whitespace) {
            return Err(at("an indented line belongs to a line that ends with a colon".into()));
        }
        let mut block = vec![];
        if line.trim_end().ends_with(':') {
            let indented = |line: &str| line.trim().is_empty() || line.starts_with(char::is_whitespace);
            while let Some((number, line)) = source.next_if(|(_, line)| indented(line)) {
                block.push((number, line));
            }
        }
        let block = Block { file, lines: block };
        let (only_over_http, rest) = match line.strip_prefix("over HTTP:") {
            None => (false, line),
            Some(rest) => (true, rest),
        };
        if let Some(what) = parser.line(rest.trim(), &block).map_err(|message| {
            // A block's own complaint names its own line.
            if message.starts_with(file) { message } else { at(message) }
        })? {
            lines.push(Line { number, only_over_http, what });
        }
    }
    Ok(Scenario { file: file.to_owned(), lines })
}

/// The indented lines below a line that ends with a colon.
struct Block<'t> {
    file: &'t str,
    lines: Vec<(usize, &'t str)>,
}

impl Block<'_> {
    fn each<T>(&self, mut read: impl FnMut(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
        let told = self.lines.iter().filter(|(_, line)| {
            let line = line.trim();
            !line.is_empty() && !line.starts_with('#')
        });
        told.map(|(number, line)| read(line.trim()).map_err(|message| format!("{}:{number}: {message}", self.file)))
            .collect()
    }

    /// The text as it stands, without the indentation that the first line has.
    fn text(&self) -> String {
        let first = self.lines.iter().find(|(_, line)| !line.trim().is_empty());
        let indent = first.map_or(0, |(_, line)| line.len() - line.trim_start().len());
        self.lines.iter().map(|(_, line)| format!("{}\n", line.get(indent..).unwrap_or_default())).collect()
    }
}

struct Parser<'p> {
    shipped: &'p dyn Fn(&str) -> Option<String>,
    declarations: HashMap<String, Arc<Declaration>>,
    gate_specs: HashMap<String, GateSpec>,
    processes: BTreeSet<String>,
    runs: BTreeSet<String>,
    gates: BTreeSet<String>,
    holds: BTreeSet<String>,
}

impl Default for Parser<'_> {
    fn default() -> Self {
        Parser {
            shipped: &|_| None,
            declarations: HashMap::new(),
            gate_specs: HashMap::new(),
            processes: BTreeSet::new(),
            runs: BTreeSet::new(),
            gates: BTreeSet::new(),
            holds: BTreeSet::new(),
        }
    }
}

/// The words of a line, from left to right.
pub(super) struct Words {
    words: Vec<Word>,
    next: usize,
}

impl Words {
    fn of(line: &str) -> Result<Words, String> {
        Ok(Words { words: split(line)?, next: 0 })
    }

    pub(super) fn peek(&self) -> Option<&str> {
        self.words.get(self.next).filter(|word| !word.quoted).map(|word| word.text.as_str())
    }

    pub(super) fn take(&mut self, what: &str) -> Result<Word, String> {
        let word = self.words.get(self.next).cloned().ok_or_else(|| format!("{what} is missing"))?;
        self.next += 1;
        Ok(word)
    }

    pub(super) fn text(&mut self, what: &str) -> Result<String, String> {
        self.take(what).map(|word| word.text)
    }

    /// True, and past it, when the next word is this one.
    pub(super) fn skip(&mut self, keyword: &str) -> bool {
        let found = self.peek() == Some(keyword);
        self.next += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, keyword: &str) -> Result<(), String> {
        if self.skip(keyword) {
            return Ok(());
        }
        let found = self.words.get(self.next).map_or("the end of the line", |word| word.text.as_str());
        Err(format!("expected `{keyword}`, found `{found}`"))
    }

    /// `keyword WORD`, if it is there.
    pub(super) fn optional(&mut self, keyword: &str) -> Result<Option<String>, String> {
        if self.skip(keyword) { self.text(keyword).map(Some) } else { Ok(None) }
    }

    fn end(&self) -> Result<(), String> {
        match self.words.get(self.next) {
            None => Ok(()),
            Some(word) => Err(format!("`{}` is not understood here", word.text)),
        }
    }
}

impl Parser<'_> {
    fn line(&mut self, line: &str, block: &Block<'_>) -> Result<Option<What>, String> {
        let (head, has_block) = match line.strip_suffix(':') {
            Some(head) => (head, true),
            None => (line, false),
        };
        let mut words = Words::of(head)?;
        match words.peek() {
            Some("actor") => return actor(line).map(Some),
            Some("declaration") if has_block => {
                words.next += 1;
                let name = words.text("the name")?;
                words.end()?;
                self.declarations.insert(name, Arc::new(declaration(block)?));
                return Ok(None);
            }
            Some("gates") if has_block => {
                words.next += 1;
                let name = words.text("the name")?;
                words.end()?;
                let entries = block.each(gate_entry)?;
                self.gate_specs.insert(name, GateSpec(entries.into_iter().collect()));
                return Ok(None);
            }
            Some("definition") => {
                words.next += 1;
                let name = words.text("the name")?;
                words.end()?;
                let shipped = || (self.shipped)(&name).ok_or_else(|| format!("no definition `{name}` is shipped"));
                let document = if has_block { block.text() } else { shipped()? };
                return Ok(Some(What::Definition { document }));
            }
            Some("policy") => {
                words.next += 1;
                let name = words.text("the policy")?;
                words.end()?;
                return Ok(Some(What::Policy { name }));
            }
            Some(length) if length.starts_with(|c: char| c.is_ascii_digit()) => {
                let us = retention::length(length)?;
                words.next += 1;
                if words.skip("after") {
                    let (run, step) = (self.process(&mut words)?, words.text("the step")?);
                    let member = words.text("a time of the step")?;
                    words.end()?;
                    return Ok(Some(What::PassUntil { us, run, step, member }));
                }
                words.expect("pass")?;
                words.end()?;
                return Ok(Some(What::Pass { us }));
            }
            Some("child") => {
                words.next += 1;
                let name = words.text("a name for the run")?;
                words.expect("of")?;
                let (run, step) = (self.process(&mut words)?, words.text("the step")?);
                words.end()?;
                self.runs.insert(name.clone());
                return Ok(Some(What::Child { name, run, step }));
            }
            Some("approval") => {
                words.next += 1;
                let name = words.text("a name for the approval")?;
                words.expect("of")?;
                let (run, action) = (self.process(&mut words)?, words.text("the gate's action")?);
                words.end()?;
                return Ok(Some(What::Approval { name, run, action }));
            }
            Some("restart") => {
                words.next += 1;
                words.end()?;
                return Ok(Some(What::Restart));
            }
            Some(
                "state" | "records" | "history" | "inbox" | "gate" | "step" | "assignment" | "record" | "last" | "run"
                | "steps",
            ) => {
                let check = self.check(&mut words, has_block.then_some(block))?;
                words.end()?;
                return Ok(Some(What::Check(check)));
            }
            _ => {}
        }
        let what = self.act(&mut words)?;
        words.end()?;
        Ok(Some(what))
    }

    fn process(&self, words: &mut Words) -> Result<String, String> {
        let word = words.take("the process")?;
        if word.quoted || word.text == NOWHERE || word.text == REGISTRY || self.is_known(&word.text) {
            return Ok(word.text);
        }
        Err(format!("no process `{}` was started; `{NOWHERE}` is one that there is not", word.text))
    }

    fn is_known(&self, name: &str) -> bool {
        self.processes.contains(name) || self.runs.contains(name)
    }

    fn target(&self, words: &mut Words) -> Result<Target, String> {
        Ok(Target { process: self.process(words)?, action: words.text("the action")?, reason: None })
    }

    fn step(&self, words: &mut Words) -> Result<StepName, String> {
        let word = words.take("the step")?;
        let (gate, approver) = match word.text.split_once('/') {
            Some((gate, approver)) if !word.quoted => (gate.to_owned(), Some(approver.to_owned())),
            _ => (word.text, None),
        };
        if word.quoted || self.gates.contains(&gate) {
            return Ok(StepName { gate, approver });
        }
        Err(format!("no gate was opened `as {gate}`; an id that there is not stands in quotes"))
    }

    fn act(&mut self, words: &mut Words) -> Result<What, String> {
        let who = words.text("who acts")?;
        let verb = words.text("what they do")?;
        let of_run = runs::act(&verb, words, &|words| self.process(words))?;
        let act = match verb.as_str() {
            _ if of_run.is_some() => of_run.ok_or("which run?")?,
            "starts" => self.start(words)?,
            "opens" => {
                let mut on = self.target(words)?;
                let name = words.optional("as")?;
                on.reason = words.optional("because")?;
                Act::Open { on, name }
            }
            "approves" | "rejects" | "withdraws" => {
                let mut on = self.target(words)?;
                let step = if words.skip("step") { Some(self.step(words)?) } else { None };
                on.reason = words.optional("because")?;
                let decision = match verb.as_str() {
                    "approves" => Decision::Approve,
                    "rejects" => Decision::Reject,
                    _ => Decision::Withdraw,
                };
                Act::Decide { on, decision, step }
            }
            "fires" => {
                let mut on = self.target(words)?;
                on.reason = words.optional("because")?;
                Act::Fire { on }
            }
            "reads" => Act::Read { process: self.process(words)? },
            "grants" => Act::Grant { subject: words.text("to whom")?, scope: words.text("the scope")? },
            "revokes" => Act::Revoke { subject: words.text("from whom")?, scope: words.text("the scope")? },
            "holds" => retention::hold(words, |words| self.process(words))?,
            "releases" => retention::release(words, &self.holds)?,
            "purges" => Act::Purge { record: retention::record(words, |words| self.process(words))? },
            "gets" => Act::Get { path: words.text("the path")? },
            "posts" => Act::Post { path: words.text("the path")?, body: words.text("the body")? },
            verb => return Err(format!("nobody can `{verb}`")),
        };
        // Where there are runs and no processes, what there is not is a run.
        let only_runs = self.processes.is_empty() && !self.runs.is_empty();
        let act = runs::of_process(act, |name| self.runs.contains(name) || (only_runs && name == NOWHERE))?;
        words.expect("->")?;
        let expected = match &act {
            Act::Run(act) => runs::expected(words, act)?,
            act => expected(words, act)?,
        };
        if !matches!(expected, Expected::Refused { .. }) {
            match &act {
                Act::Start { name, .. } => drop(self.processes.insert(name.clone())),
                Act::Open { name: Some(name), .. } => drop(self.gates.insert(name.clone())),
                Act::Hold { name: Some(name), .. } => drop(self.holds.insert(name.clone())),
                Act::Run(act) => match &**act {
                    runs::RunAct::Start { name, .. } => drop(self.runs.insert(name.clone())),
                    runs::RunAct::Open { name: Some(name), .. } => drop(self.gates.insert(name.clone())),
                    _ => {}
                },
                _ => {}
            }
        }
        Ok(What::Act { who, act, expected })
    }

    fn start(&self, words: &mut Words) -> Result<Act, String> {
        let name = words.text("a name for the process")?;
        let from = match words.text("`from` a definition or `on` a declaration")?.as_str() {
            "from" => Source::Definition(words.text("the definition")?),
            "on" => {
                let name = words.text("the declaration")?;
                let declared = self.declarations.get(&name).cloned();
                Source::Declaration(declared.ok_or_else(|| format!("no declaration `{name}` stands above"))?)
            }
            other => return Err(format!("expected `from` or `on`, found `{other}`")),
        };
        words.expect("for")?;
        let subject_ref = words.text("the subject")?;
        let gate_spec = match words.optional("with")? {
            None => GateSpec::default(),
            Some(name) => {
                self.gate_specs.get(&name).cloned().ok_or_else(|| format!("no gates `{name}` stand above"))?
            }
        };
        let reason = words.optional("because")?;
        Ok(Act::Start { name, start: Start { from, subject_ref, gate_spec, reason } })
    }

    fn check(&self, words: &mut Words, block: Option<&Block<'_>>) -> Result<Check, String> {
        let subject = words.text("what to check")?;
        match subject.as_str() {
            "state" => {
                let process = self.process(words)?;
                words.expect("is")?;
                Ok(Check::State { process, state: words.text("the state")? })
            }
            "records" => {
                let process = self.process(words)?;
                words.expect("are")?;
                let records = match block {
                    Some(block) => block.each(record_line)?,
                    None => {
                        let mut records = vec![];
                        while words.peek().is_some() {
                            records.push((words.text("a record")?, None));
                        }
                        records
                    }
                };
                Ok(Check::Records { process, records })
            }
            "history" => {
                let process = self.process(words)?;
                words.expect("is")?;
                let entries =
                    block.ok_or("the history stands below, line by line, after a colon")?.each(history_line)?;
                Ok(Check::History { process, entries })
            }
            "inbox" => {
                words.expect("of")?;
                let who = words.text("whose")?;
                words.expect("is")?;
                let mut items = vec![];
                if !words.skip("empty") {
                    while let Some(word) = words.peek() {
                        let (process, action) = word.split_once('/').ok_or("an item is PROCESS/ACTION")?;
                        if !self.is_known(process) {
                            return Err(format!("no process `{process}` was started"));
                        }
                        items.push((process.to_owned(), action.to_owned()));
                        words.next += 1;
                    }
                }
                Ok(Check::Inbox { who, items })
            }
            "gate" => {
                let Target { process, action, .. } = self.target(words)?;
                words.expect("is")?;
                let state = words.text("its state")?;
                let fate = if words.peek().is_some() { Some(words.text("its fate")?) } else { None };
                Ok(Check::Gate { process, action, state, fate })
            }
            "run" | "steps" => runs::check(&subject, words, &|words| self.process(words)).map(Check::Run),
            "step" if words.peek().is_some_and(|name| self.runs.contains(name)) => {
                runs::check(&subject, words, &|words| self.process(words)).map(Check::Run)
            }
            "step" => {
                let step = self.step(words)?;
                words.expect("is")?;
                let state = words.text("its state")?;
                Ok(Check::Step { step, state, by: words.optional("by")?, reason: words.optional("because")? })
            }
            "assignment" => {
                let step = self.step(words)?;
                words.expect("is")?;
                Ok(Check::Assignment { step, status: words.text("its status")? })
            }
            _ => {
                let number = match subject.as_str() {
                    "last" => {
                        words.expect("record")?;
                        None
                    }
                    _ => Some(words.text("its number")?.parse().map_err(|_| "a record has a number from 1")?),
                };
                words.expect("of")?;
                let process = self.process(words)?;
                if let (Some(number), true) = (number, words.skip("is")) {
                    let record = RecordName::Of { process, number };
                    return Ok(Check::Purged { record, purged: retention::purged(words)? });
                }
                if words.skip("fires") {
                    return runs::fires(words, process, number).map(Check::Run);
                }
                if words.skip("lacks") {
                    return Ok(Check::Lacks { process, number, member: words.text("the member")? });
                }
                let value_follows = words.skip("says");
                if !value_follows {
                    words.expect("names")?;
                }
                let member = words.text("the member")?;
                let value = if value_follows { Some(words.text("its value")?) } else { None };
                Ok(Check::Payload { process, number, member, value })
            }
        }
    }
}

fn expected(words: &mut Words, act: &Act) -> Result<Expected, String> {
    let word = words.take("what must come of it")?;
    if !word.quoted {
        if let Some(code) = Code::parse(&word.text) {
            return Ok(Expected::Refused { code, at: words.optional("at")?, guard: None });
        }
        if word.text == "ok" && !matches!(act, Act::Fire { .. } | Act::Decide { .. }) {
            return Ok(Expected::Ok);
        }
    }
    match act {
        Act::Fire { .. } => Ok(Expected::NewState(word.text)),
        Act::Decide { .. } if matches!(word.text.as_str(), "approved" | "rejected_outcome" | "withdrawn") => {
            Ok(Expected::Decided { outcome: word.text, chain_state: words.optional("chain")? })
        }
        _ => Err(format!("`{}` cannot come of this", word.text)),
    }
}

/// `actor NAME` or `actor NAME: SCOPE SCOPE`.
fn actor(line: &str) -> Result<What, String> {
    let mut words = Words::of(line)?;
    words.expect("actor")?;
    let name = words.take("the name")?;
    let bare = name.text.strip_suffix(':').filter(|_| !name.quoted);
    let colon = bare.is_some();
    let name = bare.unwrap_or(&name.text).to_owned();
    let mut scopes = vec![];
    while colon && words.peek().is_some() {
        scopes.push(words.text("a scope")?);
    }
    words.end()?;
    Ok(What::Actor { name, scopes })
}

/// `states: a, b` · `initial: a` · `terminal: b` · `ACTION: FROM -> TO` · `ACTION: FROM -> TO needs GUARD`.
fn declaration(block: &Block<'_>) -> Result<Declaration, String> {
    let empty =
        || Declaration { states: vec![], transitions: vec![], initial_state: String::new(), terminal_states: vec![] };
    let mut declared = empty();
    block.each(|line| {
        let mut words = Words::of(line)?;
        let key = words.take("a key")?;
        let bare = key.text.strip_suffix(':').filter(|_| !key.quoted);
        let names = |words: &mut Words| -> Result<Vec<String>, String> {
            let mut names = vec![];
            while words.next < words.words.len() {
                names.push(words.text("a state")?);
            }
            Ok(names)
        };
        match bare {
            Some("states") => declared.states = names(&mut words)?,
            Some("terminal") => declared.terminal_states = names(&mut words)?,
            Some("initial") => declared.initial_state = words.text("the initial state")?,
            _ => {
                let action = match bare {
                    Some(action) => action.to_owned(),
                    None => {
                        words.expect(":")?;
                        key.text
                    }
                };
                let from_state = words.text("where from")?;
                words.expect("->")?;
                let to_state = words.text("where to")?;
                let guard = words.optional("needs")?;
                declared.transitions.push(Transition { from_state, action, to_state, guard, effects: vec![] });
            }
        }
        words.end()
    })?;
    Ok(declared)
}

/// `LABEL: WHO for SCOPE` · `LABEL: all of A, B for SCOPE` · `LABEL: one of …` · `LABEL: 2 of …`; `delegable` may follow.
fn gate_entry(line: &str) -> Result<(String, GateEntry), String> {
    let mut words = Words::of(line)?;
    let label = words.take("the guard")?;
    let label = match label.text.strip_suffix(':') {
        Some(bare) if !label.quoted => bare.to_owned(),
        _ => {
            words.expect(":")?;
            label.text
        }
    };
    let first = words.take("who approves")?;
    let entry = if words.skip("of") {
        let rule = match first.text.as_str() {
            "all" => QuorumRule::AllOfN,
            "one" => QuorumRule::OneOfN,
            m => QuorumRule::MOfN { m: m.parse().map_err(|_| "`all`, `one` or a number stands before `of`")? },
        };
        let mut approvers = vec![];
        while !words.skip("for") {
            approvers.push(words.text("an approver, or `for`")?);
        }
        GateEntry::Quorum { approvers, rule, scope: words.text("the scope")?, delegable: words.skip("delegable") }
    } else {
        words.expect("for")?;
        let scope = words.text("the scope")?;
        GateEntry::Single { approver_ref: first.text, scope, delegable: words.skip("delegable") }
    };
    words.end()?;
    Ok((label, entry))
}

/// `ACTION_REF` or `ACTION_REF by WHO`.
fn record_line(line: &str) -> Result<(String, Option<String>), String> {
    let mut words = Words::of(line)?;
    let record = (words.text("the record")?, words.optional("by")?);
    words.end()?;
    Ok(record)
}

/// `ACTION: FROM -> TO by WHO`, and `cleared by GATE` where a gate was needed.
fn history_line(line: &str) -> Result<HistoryLine, String> {
    let mut words = Words::of(line)?;
    let action = words.text("the action")?;
    let action = action.strip_suffix(':').ok_or("a colon stands after the action")?.to_owned();
    let from_state = words.text("where from")?;
    words.expect("->")?;
    let to_state = words.text("where to")?;
    words.expect("by")?;
    let by = words.text("who fired it")?;
    let cleared_by = if words.skip("cleared") {
        words.expect("by")?;
        Some(words.text("the gate")?)
    } else {
        None
    };
    words.end()?;
    Ok(HistoryLine { action, from_state, to_state, by, cleared_by })
}

#[cfg(test)]
mod tests;
