//! A process and every process that it starts, as one group: killed together and reaped. The working directory is
//! removed when no process writes to it any more.

use super::warden;
use process_wrap::tokio::{ChildWrapper, CommandWrap, ProcessGroup};
use std::io;
use std::process::ExitStatus;
use std::time::Duration;
use tempfile::TempDir;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};

/// How long killed processes are waited for. More is needed only by one that hangs in the kernel, or where nobody reaps
/// orphans (a container without an init), and neither may hold us up.
const PATIENCE: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

pub struct Group {
    /// `None` only when everything is over.
    inner: Option<Inner>,
}

struct Inner {
    child: Box<dyn ChildWrapper>,
    /// By which the warden knows it.
    number: Option<u32>,
    directory: TempDir,
}

pub type Pipes = (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>);

impl Group {
    pub fn spawn(command: Command, directory: TempDir) -> io::Result<Self> {
        let child = CommandWrap::from(command).wrap(ProcessGroup::leader()).spawn()?;
        let number = child.id();
        number.into_iter().for_each(warden::mind);
        Ok(Group { inner: Some(Inner { child, number, directory }) })
    }

    pub fn pipes(&mut self) -> Pipes {
        let Some(inner) = &mut self.inner else { return (None, None, None) };
        (inner.child.stdin().take(), inner.child.stdout().take(), inner.child.stderr().take())
    }

    /// The end of the process that was started; others of its group may still be there.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        match &mut self.inner {
            Some(inner) => inner.child.wait().await,
            None => Err(io::Error::other("the process has been waited for already")),
        }
    }

    /// Asks every process of the group to end, without a choice.
    pub fn kill(&mut self) {
        if let Some(inner) = &mut self.inner {
            // No process is left, or none will be.
            let _ = inner.child.start_kill();
        }
    }

    /// Kills what is left and waits for it to be gone. The working directory remains, so that files can be copied from it.
    pub async fn end(mut self) -> Option<TempDir> {
        Some(self.inner.take()?.end().await)
    }
}

impl Inner {
    async fn end(mut self) -> TempDir {
        let _ = self.child.start_kill();
        let _ = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        let gone = async {
            // Killing is repeated: a process may have been forked while the group was being killed. That nobody could be
            // killed means that nobody is left.
            while self.child.start_kill().is_ok() {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        let _ = tokio::time::timeout(PATIENCE, gone).await;
        self.number.into_iter().for_each(warden::leave);
        self.directory
    }
}

/// Removes a working directory. It may be large: not for a thread that others wait for.
pub fn remove(directory: TempDir) {
    let path = directory.path().to_owned();
    if let Err(error) = directory.close() {
        tracing::warn!(path = %path.display(), %error, "the working directory of a step cannot be removed");
    }
}

impl Drop for Group {
    /// The job was cancelled: its future is dropped, so another task must wait.
    fn drop(&mut self) {
        self.kill();
        if let (Some(inner), Ok(runtime)) = (self.inner.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async {
                let directory = inner.end().await;
                tokio::task::spawn_blocking(|| remove(directory)).await
            });
        }
    }
}
