//! Which keys an auditor trusts (`spec/checkpoint.md`, section 5), and whether enough witnesses cosigned.

use crate::note::{Checkpoint, KeyKind, VerifierKey};
use std::collections::HashMap;

/// The log keys that will do, and the witnesses that are asked for.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    pub log_keys: Vec<VerifierKey>,
    members: Vec<Member>,
    /// None: no witness is asked for.
    quorum: Option<usize>,
}

#[derive(Clone, Debug)]
struct Member {
    nickname: String,
    kind: MemberKind,
}

#[derive(Clone, Debug)]
enum MemberKind {
    Witness(VerifierKey),
    Group { needed: usize, members: Vec<usize> },
}

impl Trust {
    pub fn of_keys(log_keys: Vec<VerifierKey>) -> Trust {
        Trust { log_keys, ..Trust::default() }
    }

    pub fn asks_for_witnesses(&self) -> bool {
        self.quorum.is_some()
    }

    /// Whether the quorum of witnesses is there; otherwise who is missing.
    pub fn witnessed(&self, checkpoint: &Checkpoint) -> Result<(), String> {
        let Some(quorum) = self.quorum else { return Ok(()) };
        // Members stand before the groups that name them, so one pass settles everything.
        let mut satisfied: Vec<bool> = Vec::with_capacity(self.members.len());
        for member in &self.members {
            let fits = match &member.kind {
                MemberKind::Witness(key) => checkpoint.cosigned_by(key).is_some(),
                MemberKind::Group { needed, members } => {
                    members.iter().filter(|i| satisfied.get(**i) == Some(&true)).count() >= *needed
                }
            };
            satisfied.push(fits);
        }
        if satisfied.get(quorum) == Some(&true) {
            return Ok(());
        }
        let name = |i: usize| self.members.get(i).map_or("?", |member| member.nickname.as_str());
        let without: Vec<&str> = (0..self.members.len())
            .filter(|i| satisfied.get(*i) == Some(&false))
            .filter(|i| matches!(self.members.get(*i).map(|m| &m.kind), Some(MemberKind::Witness(_))))
            .map(name)
            .collect();
        Err(format!(
            "the policy asks for `{}`; no valid cosignature by {}",
            name(quorum),
            if without.is_empty() { "enough witnesses".to_owned() } else { without.join(", ") }
        ))
    }
}

/// Reads a policy file. The error says which line is wrong and why.
pub fn parse(text: &str) -> Result<Trust, String> {
    let mut reader = Reader { trust: Trust::default(), names: HashMap::new(), quorum_seen: false };
    for (number, line) in (1..).zip(text.lines()) {
        let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
        if !words.is_empty() {
            reader.line(&words).map_err(|problem| format!("policy, line {number}: {problem}"))?;
        }
    }
    if !reader.quorum_seen {
        return Err("policy: a `quorum` line is missing; a policy without witnesses says `quorum none`".to_owned());
    }
    Ok(reader.trust)
}

struct Reader {
    trust: Trust,
    names: HashMap<String, usize>,
    quorum_seen: bool,
}

impl Reader {
    fn line(&mut self, words: &[&str]) -> Result<(), String> {
        match words {
            ["log", key] => {
                self.trust.log_keys.push(key_of(key, KeyKind::Log)?);
                Ok(())
            }
            ["witness", nickname, key] => self.add(nickname, MemberKind::Witness(key_of(key, KeyKind::Witness)?)),
            ["group", nickname, needed, members @ ..] if !members.is_empty() => {
                let members: Vec<usize> = members.iter().map(|name| self.known(name)).collect::<Result<_, _>>()?;
                if (1..members.len()).any(|i| members.iter().take(i).any(|m| Some(m) == members.get(i))) {
                    return Err("a group names one member twice".to_owned());
                }
                let needed = match *needed {
                    "all" => members.len(),
                    "any" => 1,
                    number => number.parse().map_err(|_| "a group needs a number, `all` or `any`".to_owned())?,
                };
                if needed == 0 || needed > members.len() {
                    return Err(format!("{needed} of {} members can not be asked for", members.len()));
                }
                self.add(nickname, MemberKind::Group { needed, members })
            }
            ["quorum", _] if self.quorum_seen => Err("a second `quorum` line".to_owned()),
            ["quorum", "none"] => {
                self.quorum_seen = true;
                Ok(())
            }
            ["quorum", nickname] => {
                self.quorum_seen = true;
                self.trust.quorum = Some(self.known(nickname)?);
                Ok(())
            }
            _ => Err(format!("`{}` is not a line of a policy", words.join(" "))),
        }
    }

    fn known(&self, nickname: &str) -> Result<usize, String> {
        self.names.get(nickname).copied().ok_or_else(|| format!("`{nickname}` is not named above"))
    }

    fn add(&mut self, nickname: &str, kind: MemberKind) -> Result<(), String> {
        if nickname == "none" || self.names.insert(nickname.to_owned(), self.trust.members.len()).is_some() {
            return Err(format!("the nickname `{nickname}` is taken"));
        }
        self.trust.members.push(Member { nickname: nickname.to_owned(), kind });
        Ok(())
    }
}

fn key_of(text: &str, kind: KeyKind) -> Result<VerifierKey, String> {
    let key = VerifierKey::parse(text)?;
    if key.kind != kind {
        return Err(format!("`{}` is a key of the other kind: logs have 0x01, witnesses 0x04", key.name));
    }
    Ok(key)
}
