//! A proxy between an engine and PostgreSQL. After a given number of bytes it cuts the connection or stops answering.

use anyhow::Context;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

/// Never reached.
const ENDLESS: i64 = i64::MAX / 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What the engine sends.
    Client,
    /// What the server answers.
    Server,
}

pub struct Proxy {
    /// The database's address through this proxy.
    pub url: String,
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    server: String,
    /// Bytes that each side may still send before the connection is cut.
    left: [AtomicI64; 2],
    cuts: AtomicUsize,
    /// A connection that would be cut falls silent instead, until this is over.
    silent: AtomicBool,
    ended: AtomicBool,
}

impl Proxy {
    pub fn new(url: &str) -> anyhow::Result<Proxy> {
        let (before, rest) = url.split_once('@').context("an address with a user")?;
        let (server, database) = rest.split_once('/').context("an address with a database")?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            server: server.to_owned(),
            left: [AtomicI64::new(ENDLESS), AtomicI64::new(ENDLESS)],
            cuts: AtomicUsize::new(0),
            silent: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        let accepting = shared.clone();
        std::thread::spawn(move || accept(&listener, &accepting));
        Ok(Proxy { url: format!("{before}@{address}/{database}"), address, shared })
    }

    /// Cuts after so many more bytes of this side.
    pub fn cut_after(&self, side: Side, bytes: i64) {
        self.shared.left[side as usize].store(bytes, Ordering::SeqCst);
    }

    /// Instead of cutting: both ends stay open and hear nothing more, until this is switched off again.
    pub fn silence(&self, on: bool) {
        self.shared.silent.store(on, Ordering::SeqCst);
    }

    /// How many bytes were sent since [`Proxy::cut_after`] gave that number; nothing is cut any more.
    pub fn disarm(&self, side: Side, given: i64) -> i64 {
        given - self.shared.left[side as usize].swap(ENDLESS, Ordering::SeqCst)
    }

    pub fn cuts(&self) -> usize {
        self.shared.cuts.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        if shared.ended.load(Ordering::SeqCst) {
            return;
        }
        let (Ok(client), Ok(server)) = (client, TcpStream::connect(&shared.server)) else { continue };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (Ok(client_too), Ok(server_too)) = (client.try_clone(), server.try_clone()) else { continue };
        let (here, there) = (shared.clone(), shared.clone());
        std::thread::spawn(move || forward(client, server, Side::Client, &here));
        std::thread::spawn(move || forward(server_too, client_too, Side::Server, &there));
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, side: Side, shared: &Shared) {
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let length = i64::try_from(count).unwrap_or(0);
        let left = shared.left[side as usize].fetch_sub(length, Ordering::SeqCst);
        let passes = usize::try_from(left.clamp(0, length)).unwrap_or(0);
        if to.write_all(&buffer[..passes]).is_err() {
            break;
        }
        if left < length {
            shared.left[side as usize].store(ENDLESS, Ordering::SeqCst);
            shared.cuts.fetch_add(1, Ordering::SeqCst);
            while shared.silent.load(Ordering::SeqCst) && !shared.ended.load(Ordering::SeqCst) {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
