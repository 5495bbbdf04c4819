//! When a delivery that failed is tried again, and when it is given up.

use countersign_engine::port::outbox::Settled;
use countersign_executor::http::Answered;
use std::time::Duration;

/// How long the pauses between attempts are: each is twice the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    pub first: Duration,
    pub longest: Duration,
    /// How much longer than the webhook's timeout a delivery stays taken. If this node dies meanwhile, the delivery is
    /// made again after that.
    pub margin: Duration,
    /// How often is looked for what has become due, or what other nodes have committed.
    pub look: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            first: Duration::from_secs(5),
            longest: Duration::from_secs(3600),
            margin: Duration::from_secs(30),
            look: Duration::from_secs(1),
        }
    }
}

impl Pace {
    /// The pause after this attempt (from 1). `chance` lies between 0 and 1 and moves it by up to a quarter, so that what
    /// failed together does not come back together.
    fn pause(&self, attempt: u64, chance: f64) -> Duration {
        let doublings = u32::try_from(attempt.saturating_sub(1).min(30)).unwrap_or(30);
        let pause = self.first.saturating_mul(1 << doublings).min(self.longest);
        pause.mul_f64(0.75 + chance.clamp(0.0, 1.0) / 2.0)
    }

    /// What an answer means for the delivery.
    pub fn judge(&self, answer: Answer, attempt: u64, max_attempts: u64) -> Settled {
        match answer {
            Answer::Taken => Settled::Delivered,
            Answer::Never(error) => Settled::Dead { error },
            Answer::Later { error, .. } if attempt >= max_attempts => {
                Settled::Dead { error: format!("given up after {attempt} attempts: {error}") }
            }
            Answer::Later { error, asked } => {
                Settled::Postponed { error, pause: self.pause(attempt, chance()).max(asked.unwrap_or_default()) }
            }
        }
    }
}

/// What came of sending a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Taken,
    /// It may be taken another time, at the earliest after the pause that was asked for.
    Later {
        error: String,
        asked: Option<Duration>,
    },
    /// The same message would be answered in the same way again.
    Never(String),
}

impl Answer {
    pub fn later(error: impl Into<String>) -> Self {
        Answer::Later { error: error.into(), asked: None }
    }
}

impl From<Answered> for Answer {
    fn from(answered: Answered) -> Self {
        match answered {
            Answered::Status { status: 200..=299, .. } => Answer::Taken,
            Answered::Status { status, .. } if is_final(status) => Answer::Never(format!("answered {status}")),
            Answered::Status { status, retry_after } => {
                Answer::Later { error: format!("answered {status}"), asked: retry_after }
            }
            Answered::Not(why) => Answer::later(why),
        }
    }
}

/// The same request would be answered in the same way again.
pub fn is_final(status: u16) -> bool {
    (400..500).contains(&status) && !matches!(status, 408 | 429)
}

/// Without randomness everybody waits equally long, which is no harm.
fn chance() -> f64 {
    let mut bytes = [0; 4];
    let _ = getrandom::fill(&mut bytes);
    f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16) -> Answer {
        Answered::Status { status, retry_after: None }.into()
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let pace = Pace::default();
        let seconds = |attempt| pace.pause(attempt, 0.5).as_secs();
        assert_eq!((seconds(1), seconds(2), seconds(5), seconds(11), seconds(u64::MAX)), (5, 10, 80, 3600, 3600));
        assert!(pace.pause(1, 0.0) < pace.pause(1, 1.0));
    }

    #[test]
    fn an_answer_decides_what_follows() {
        let pace = Pace::default();
        for code in [200, 202, 204, 299] {
            assert_eq!(pace.judge(status(code), 1, 12), Settled::Delivered, "{code}");
        }
        for code in [400, 401, 404, 410, 422, 499] {
            assert!(matches!(pace.judge(status(code), 1, 12), Settled::Dead { .. }), "{code}");
        }
        for code in [100, 301, 307, 408, 429, 500, 503] {
            assert!(matches!(pace.judge(status(code), 11, 12), Settled::Postponed { .. }), "{code}");
            assert!(matches!(pace.judge(status(code), 12, 12), Settled::Dead { .. }), "{code}");
        }
        let down = Answered::Not("connection refused".to_owned());
        assert!(
            matches!(pace.judge(down.into(), 1, 2), Settled::Postponed { error, .. } if error == "connection refused")
        );
        let busy = Answered::Status { status: 429, retry_after: Some(Duration::from_secs(99)) };
        assert!(matches!(pace.judge(busy.into(), 1, 2), Settled::Postponed { pause, .. } if pause.as_secs() == 99));
    }
}
