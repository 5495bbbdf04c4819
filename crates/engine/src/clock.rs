//! Time and randomness enter the engine here and nowhere else (ADR 32).
//!
//! [`Clock`] is what the machine says: the time on the wall, which people and programs set, and how much time has passed,
//! which nobody can set. [`EngineClock`] makes of both the one time that records and time-outs go by.

use countersign_kernel::Time;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// A difference between the wall clock and the engine's that is more than drift.
pub const JUMP_US: i64 = 10_000_000;
/// A wall clock that went ahead is followed when it has kept to its new time for this long: most that do are set right
/// soon, and what has expired stays so.
pub const HOLD_US: i64 = 120_000_000;
/// While the engine's time is ahead of the wall, it goes slower by this part: timers last a twelfth longer at most.
const SLEW: i64 = 12;
/// Records of other nodes may be ahead of this node's time by so much before it goes after them.
const SKEW_US: i64 = 1_000_000;

/// One look at the machine's clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    pub wall: Time,
    /// Since some moment before; no setting of the wall clock changes it.
    pub elapsed_us: i64,
}

/// A source of time; tests bring their own.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Reading + Send + Sync>);

impl Clock {
    pub fn new(read: impl Fn() -> Reading + Send + Sync + 'static) -> Self {
        Clock(Arc::new(read))
    }

    /// The clocks of this machine.
    pub fn system() -> Self {
        Clock::new(|| Reading { wall: wall(), elapsed_us: elapsed_us() })
    }

    /// A clock of which only the wall is known: whenever it goes ahead, so much time has passed.
    pub fn told(wall: impl Fn() -> Time + Send + Sync + 'static) -> Self {
        let last = Mutex::new((wall(), 0));
        Clock::new(move || {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            let wall = wall();
            *last = (wall, last.1 + (wall.0 - last.0.0).max(0));
            Reading { wall, elapsed_us: last.1 }
        })
    }

    pub fn read(&self) -> Reading {
        (self.0)()
    }
}

fn wall() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// Goes on while the machine sleeps: a laptop that wakes up is not a clock that was set.
#[cfg(target_os = "linux")]
fn elapsed_us() -> i64 {
    let since_boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    since_boot.tv_sec.saturating_mul(1_000_000).saturating_add(since_boot.tv_nsec / 1000)
}

#[cfg(not(target_os = "linux"))]
fn elapsed_us() -> i64 {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let start = START.get_or_init(std::time::Instant::now);
    i64::try_from(start.elapsed().as_micros()).unwrap_or(i64::MAX)
}

/// The engine's time. It never goes back and never stands still: it follows the wall clock where that goes on evenly, and
/// otherwise goes on by the time that has passed.
pub struct EngineClock {
    source: Clock,
    /// By how much the store's clock is ahead of this machine's wall clock.
    store_ahead_us: AtomicI64,
    state: Mutex<State>,
}

struct State {
    now_us: i64,
    elapsed_us: i64,
    /// By how much the wall clock was ahead when it was last read.
    ahead_us: i64,
    /// When the wall clock went ahead, if it is not followed yet.
    held_since_us: Option<i64>,
}

impl EngineClock {
    pub fn new(source: Clock, store_ahead_us: i64) -> Self {
        let Reading { wall, elapsed_us } = source.read();
        let now_us = wall.0.saturating_add(store_ahead_us);
        let state = State { now_us, elapsed_us, ahead_us: 0, held_since_us: None };
        EngineClock { source, store_ahead_us: AtomicI64::new(store_ahead_us), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The machine's clocks, with the wall clock corrected by the store's.
    fn read(&self) -> Reading {
        let Reading { wall, elapsed_us } = self.source.read();
        let store_ahead_us = self.store_ahead_us.load(Ordering::Relaxed);
        Reading { wall: Time(wall.0.saturating_add(store_ahead_us)), elapsed_us }
    }

    pub fn now(&self) -> Time {
        let mut state = self.state();
        // Read under the lock, so that readings come in the order in which they were made.
        let reading = self.read();
        state.advance(reading);
        Time(state.now_us)
    }

    /// What the wall clock says, right or wrong: for what people say by theirs.
    pub fn wall(&self) -> Time {
        self.read().wall
    }

    /// By how much the engine's time is ahead of the wall clock; less than zero: behind it.
    pub fn ahead_of_wall_us(&self) -> i64 {
        let now = self.now();
        now.0.saturating_sub(self.wall().0)
    }

    pub fn set_store_ahead_us(&self, ahead_us: i64) {
        self.store_ahead_us.store(ahead_us, Ordering::Relaxed);
    }

    /// Something was recorded at this time: the engine's time is not earlier, wherever that came from.
    pub fn observe(&self, recorded: Time) {
        let mut state = self.state();
        let by_us = recorded.0.saturating_sub(state.now_us);
        if by_us <= SKEW_US {
            return;
        }
        state.now_us = recorded.0;
        state.ahead_us = state.ahead_us.saturating_sub(by_us);
        if by_us > JUMP_US && -state.ahead_us > JUMP_US {
            jumped("stored");
            tracing::warn!(
                by_s = by_us / 1_000_000,
                "the newest record is ahead of the wall clock: the engine's time goes on from that record"
            );
        }
    }
}

impl State {
    fn advance(&mut self, Reading { wall, elapsed_us }: Reading) {
        let passed_us = elapsed_us.saturating_sub(self.elapsed_us).max(0);
        self.elapsed_us = elapsed_us;
        let steady_us = self.now_us.saturating_add(passed_us);
        let ahead_us = wall.0.saturating_sub(steady_us);
        let by_us = ahead_us.saturating_sub(self.ahead_us);
        if by_us.abs() > JUMP_US {
            jumped(if by_us > 0 { "ahead" } else { "back" });
            tracing::warn!(
                by_s = by_us / 1_000_000,
                engine_behind_wall_s = ahead_us / 1_000_000,
                "the wall clock jumped: the engine's time goes on by the time that has passed"
            );
            self.held_since_us = None;
        }
        self.ahead_us = ahead_us;
        if ahead_us <= JUMP_US {
            self.held_since_us = None;
            // Slower while it is ahead of the wall, until they meet.
            let slower_us = (passed_us / SLEW).min(-ahead_us.min(0));
            self.now_us = steady_us + ahead_us.max(0) - slower_us;
        } else if elapsed_us - *self.held_since_us.get_or_insert(elapsed_us) < HOLD_US {
            self.now_us = steady_us;
        } else {
            tracing::warn!(by_s = ahead_us / 1_000_000, "the wall clock kept to its new time: the engine follows it");
            self.held_since_us = None;
            self.now_us = wall.0;
        }
        self.ahead_us = wall.0.saturating_sub(self.now_us);
    }
}

fn jumped(direction: &'static str) {
    metrics::counter!("countersign_clock_jumps_total", "direction" => direction).increment(1);
}

/// Random bytes from the operating system, fetched in pages.
pub struct Entropy {
    page: Box<[u8; 4096]>,
    used: usize,
}

impl Default for Entropy {
    fn default() -> Self {
        Entropy { page: Box::new([0; 4096]), used: 4096 }
    }
}

impl Entropy {
    pub fn take<const N: usize>(&mut self) -> Result<[u8; N], getrandom::Error> {
        if self.used + N > self.page.len() {
            getrandom::fill(&mut self.page[..])?;
            self.used = 0;
        }
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.page[self.used..self.used + N]);
        // A page that leaks later must not tell old salts.
        self.page[self.used..self.used + N].fill(0);
        self.used += N;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const DAY: i64 = 86_400 * SECOND;
    const START: i64 = 1_800_000_000 * SECOND;

    #[derive(Clone)]
    struct Machine(Arc<Mutex<Reading>>);

    impl Machine {
        fn new() -> (Machine, EngineClock) {
            let machine = Machine(Arc::new(Mutex::new(Reading { wall: Time(START), elapsed_us: 7 })));
            let read = machine.clone();
            (machine, EngineClock::new(Clock::new(move || *read.0.lock().expect("a reading")), 0))
        }

        fn passes(&self, us: i64) {
            let mut reading = self.0.lock().expect("a reading");
            *reading = Reading { wall: Time(reading.wall.0 + us), elapsed_us: reading.elapsed_us + us };
        }

        fn set(&self, by_us: i64) {
            self.0.lock().expect("a reading").wall.0 += by_us;
        }
    }

    #[test]
    fn a_clock_that_goes_on_evenly_is_followed() {
        let (machine, clock) = Machine::new();
        assert_eq!(clock.now(), Time(START));
        machine.passes(5 * SECOND);
        machine.set(3 * SECOND);
        assert_eq!(clock.now(), Time(START + 8 * SECOND), "set right by a little");
        machine.set(-SECOND);
        assert_eq!(clock.now(), Time(START + 8 * SECOND), "never back");
        machine.passes(6 * SECOND);
        assert_eq!(clock.now(), Time(START + 13 * SECOND + SECOND / 2), "slower, until they meet");
        machine.passes(60 * SECOND);
        assert_eq!((clock.now(), clock.ahead_of_wall_us()), (Time(START + 73 * SECOND), 0));
    }

    #[test]
    fn a_jump_ahead_that_is_set_right_leaves_no_trace() {
        let (machine, clock) = Machine::new();
        machine.set(30 * DAY);
        for _ in 0..11 {
            machine.passes(10 * SECOND);
            clock.now();
        }
        assert_eq!((clock.now(), clock.ahead_of_wall_us()), (Time(START + 110 * SECOND), -30 * DAY));
        machine.set(-30 * DAY);
        machine.passes(SECOND);
        assert_eq!((clock.now(), clock.ahead_of_wall_us()), (Time(START + 111 * SECOND), 0));
    }

    #[test]
    fn a_jump_ahead_that_stays_is_followed_and_then_time_goes_on() {
        let (machine, clock) = Machine::new();
        machine.set(30 * DAY);
        clock.now();
        machine.set(DAY);
        machine.passes(HOLD_US - 1);
        assert_eq!(clock.now(), Time(START + HOLD_US - 1), "it moved again: the time is counted anew");
        machine.passes(HOLD_US);
        let followed = START + 31 * DAY + 2 * HOLD_US - 1;
        assert_eq!((clock.now(), clock.ahead_of_wall_us()), (Time(followed), 0));
        machine.set(-31 * DAY);
        assert_eq!(clock.now(), Time(followed));
        machine.passes(12 * SECOND);
        assert_eq!(clock.now(), Time(followed + 11 * SECOND), "a twelfth slower");
        assert_eq!(clock.ahead_of_wall_us(), 31 * DAY - SECOND);
    }

    #[test]
    fn what_was_recorded_is_gone_on_from() {
        let (machine, clock) = Machine::new();
        clock.observe(Time(START + SECOND));
        assert_eq!(clock.now(), Time(START), "clocks differ by so much");
        clock.observe(Time(START + 30 * DAY));
        assert_eq!(clock.now(), Time(START + 30 * DAY));
        machine.passes(24 * SECOND);
        assert_eq!(clock.now(), Time(START + 30 * DAY + 22 * SECOND));
        clock.observe(Time(START));
        assert_eq!(clock.now(), Time(START + 30 * DAY + 22 * SECOND));
    }

    #[test]
    fn a_wall_clock_of_its_own_follows_the_store_s() {
        let (machine, clock) = Machine::new();
        let behind = EngineClock::new(clock.source.clone(), -5 * SECOND);
        assert_eq!((behind.now(), behind.ahead_of_wall_us()), (Time(START - 5 * SECOND), 0), "from the start");
        clock.set_store_ahead_us(2 * SECOND);
        assert_eq!((clock.now(), clock.wall()), (Time(START + 2 * SECOND), Time(START + 2 * SECOND)));
        // Its own is set; before long the store is asked again.
        machine.set(DAY);
        machine.passes(30 * SECOND);
        assert_eq!(clock.now(), Time(START + 32 * SECOND));
        clock.set_store_ahead_us(2 * SECOND - DAY);
        machine.passes(SECOND);
        assert_eq!((clock.now(), clock.ahead_of_wall_us()), (Time(START + 33 * SECOND), 0));
    }

    #[test]
    fn what_a_told_clock_goes_ahead_has_passed() {
        let at = Arc::new(AtomicI64::new(START));
        let told = at.clone();
        let clock = EngineClock::new(Clock::told(move || Time(told.load(Ordering::SeqCst))), 0);
        at.store(START + 7 * DAY, Ordering::SeqCst);
        assert_eq!(clock.now(), Time(START + 7 * DAY));
        at.store(START, Ordering::SeqCst);
        assert_eq!(clock.now(), Time(START + 7 * DAY));
        at.store(START + 12 * SECOND, Ordering::SeqCst);
        assert_eq!(clock.now(), Time(START + 7 * DAY + 11 * SECOND));
    }
}
