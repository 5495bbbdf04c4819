//! How a process is asked to stop: Ctrl-C, and SIGTERM as service managers and containers send it.

use tokio::signal::unix::{Signal, SignalKind, signal};

pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// From now on neither signal ends the process by itself.
    pub fn listen() -> std::io::Result<Stop> {
        Ok(Stop { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits until it is asked for, and says how.
    pub async fn asked(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "interrupted",
            _ = self.terminate.recv() => "terminated",
        }
    }
}
