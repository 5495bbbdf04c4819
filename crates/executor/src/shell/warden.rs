//! Ends the processes of our jobs if this process is killed. A separate process receives the begin and the end of
//! every group. When the pipe to it closes, for any reason, it kills the remaining groups.
//!
//! Linux can kill a process when its parent dies (`PR_SET_PDEATHSIG`), but not the processes that it has started. It
//! also takes the end of a thread for the end of the parent.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

const SCRIPT: &str = r#"
trap '' INT TERM HUP QUIT
groups=' '
while read -r sign group; do
    case $sign in
        +) groups="$groups$group " ;;
        -) groups="${groups%% $group *} ${groups#* $group }" ;;
    esac
done
for group in $groups; do kill -KILL "-$group"; done
"#;

static WARDEN: Mutex<Warden> = Mutex::new(Warden { groups: BTreeSet::new(), process: None });

struct Warden {
    groups: BTreeSet<u32>,
    /// Begun with the first group.
    process: Option<(Child, ChildStdin)>,
}

/// Has this group killed should we end before it does.
pub fn mind(group: u32) {
    let mut warden = warden();
    if warden.groups.insert(group) {
        warden.tell('+', group);
    }
}

/// The group has ended.
pub fn leave(group: u32) {
    let mut warden = warden();
    if warden.groups.remove(&group) {
        warden.tell('-', group);
    }
}

fn warden() -> MutexGuard<'static, Warden> {
    WARDEN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Warden {
    fn tell(&mut self, sign: char, group: u32) {
        let told = self.process.as_mut().is_some_and(|(_, pipe)| pipe.write_all(line(sign, group).as_bytes()).is_ok());
        if told {
            return;
        }
        // There is none yet, or it was killed.
        if let Some((mut gone, pipe)) = self.process.take() {
            drop(pipe);
            let _ = gone.wait();
        }
        match start(&self.groups) {
            Ok(process) => self.process = Some(process),
            Err(error) => tracing::warn!(%error, "nobody ends the processes of steps should this one be killed"),
        }
    }
}

fn line(sign: char, group: u32) -> String {
    format!("{sign} {group}\n")
}

/// In a separate group: signals to our group, from a terminal or a supervisor, must not reach it.
fn start(groups: &BTreeSet<u32>) -> io::Result<(Child, ChildStdin)> {
    let mut process = Command::new("/bin/sh")
        .args(["-c", SCRIPT, "countersign-warden"])
        .env_clear()
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let mut pipe = process.stdin.take().ok_or_else(|| io::Error::other("it has no standard input"))?;
    for group in groups {
        pipe.write_all(line('+', *group).as_bytes())?;
    }
    Ok((process, pipe))
}
