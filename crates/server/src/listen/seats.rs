//! Who is connected, and who has been idle for longest.

use super::Limits;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

pub struct Seats(Arc<Room>);

struct Room {
    limits: Limits,
    taken: Mutex<Taken>,
    /// Counts whoever becomes idle: what has a lower number has been idle for longer.
    turn: AtomicU64,
}

#[derive(Default)]
struct Taken {
    peers: HashMap<u64, Arc<Peer>>,
    by_address: HashMap<IpAddr, usize>,
    next: u64,
}

/// One connection.
pub struct Peer {
    address: IpAddr,
    /// Requests whose answer has not been sent.
    under_way: AtomicUsize,
    idle_since: AtomicU64,
    room: Arc<Room>,
    close: Notify,
    /// It ends whatever is under way.
    cut_off: AtomicBool,
}

/// For a request that may have to end its own connection, because the peer takes nothing of the answer.
#[derive(Clone)]
pub struct Line(Arc<Peer>);

/// A connection's place; whoever drops it gives it up.
pub struct Seat {
    id: u64,
    peer: Arc<Peer>,
}

/// A request under way, until its answer has been sent.
pub struct Busy(Arc<Peer>);

impl Room {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seats {
    pub fn new(limits: Limits) -> Self {
        Seats(Arc::new(Room { limits, taken: Mutex::default(), turn: AtomicU64::new(0) }))
    }

    /// A place for this peer; if need be, that of one who is idle.
    pub fn take(&self, peer: SocketAddr) -> Option<Seat> {
        let (room, address) = (&self.0, network(peer.ip()));
        let mut taken = room.taken();
        if taken.by_address.get(&address).is_some_and(|count| *count >= room.limits.per_address) {
            taken.close_idle(Some(address))?;
        }
        if taken.peers.len() >= room.limits.connections {
            taken.close_idle(None)?;
        }
        let id = taken.next;
        taken.next += 1;
        let peer = Arc::new(Peer {
            address,
            under_way: AtomicUsize::new(0),
            idle_since: AtomicU64::new(room.turn.fetch_add(1, Ordering::Relaxed)),
            room: room.clone(),
            close: Notify::new(),
            cut_off: AtomicBool::new(false),
        });
        taken.peers.insert(id, peer.clone());
        *taken.by_address.entry(address).or_default() += 1;
        taken.count();
        Some(Seat { id, peer })
    }

    /// Closes one connection that is idle, if there is one.
    pub fn make_room(&self) {
        self.0.taken().close_idle(None);
    }
}

impl Taken {
    /// Closes the connection that has been idle for longest, of this address or of any.
    fn close_idle(&mut self, address: Option<IpAddr>) -> Option<()> {
        let idle = self.peers.iter().filter(|(_, peer)| {
            address.is_none_or(|address| peer.address == address) && peer.under_way.load(Ordering::Acquire) == 0
        });
        let id = idle.min_by_key(|(_, peer)| peer.idle_since.load(Ordering::Relaxed)).map(|(id, _)| *id)?;
        let peer = self.leave(id)?;
        peer.close.notify_one();
        Some(())
    }

    fn leave(&mut self, id: u64) -> Option<Arc<Peer>> {
        let peer = self.peers.remove(&id)?;
        if let Some(count) = self.by_address.get_mut(&peer.address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&peer.address);
            }
        }
        self.count();
        Some(peer)
    }

    fn count(&self) {
        metrics::gauge!("countersign_connections").set(self.peers.len() as f64);
    }
}

impl Peer {
    pub fn begin(self: &Arc<Self>) -> Busy {
        self.under_way.fetch_add(1, Ordering::AcqRel);
        Busy(self.clone())
    }

    pub fn line(self: &Arc<Self>) -> Line {
        Line(self.clone())
    }

    pub fn is_cut_off(&self) -> bool {
        self.cut_off.load(Ordering::Acquire)
    }

    /// Returns when this connection has to make room for another one, or is cut off.
    pub async fn makes_room(&self) {
        loop {
            self.close.notified().await;
            // A request may have come in the same moment: it is answered, above the limit.
            if self.under_way.load(Ordering::Acquire) == 0 || self.is_cut_off() {
                return;
            }
        }
    }
}

impl Line {
    pub fn cut_off(&self) {
        let Line(peer) = self;
        peer.cut_off.store(true, Ordering::Release);
        peer.close.notify_one();
    }
}

impl Seat {
    pub fn peer(&self) -> Arc<Peer> {
        self.peer.clone()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.peer.room.taken().leave(self.id);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let Busy(peer) = self;
        peer.idle_since.store(peer.room.turn.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        peer.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whoever has one IPv6 address has 2^64 of them.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_network_count_together() {
        let same = |a: &str, b: &str| network(a.parse().expect("a")) == network(b.parse().expect("b"));
        assert!(same("2001:db8::1", "2001:db8::2:3:4:5"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(same("10.0.0.1", "::ffff:10.0.0.1"));
        assert!(!same("10.0.0.1", "10.0.0.2"));
    }
}
