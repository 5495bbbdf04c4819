//! Connections: each is served by a task of its own, and none may take for ever to say what it wants. Who has not sent
//! the whole head of a request in time is let go, so that silent connections cannot pile up. There are so many at a time,
//! in all and from one address; where that is reached, the one that has been idle for longest makes room.

mod seats;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
pub use seats::Line;
use seats::{Busy, Seat, Seats};
use std::io::Write;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// How long the head of a request may take, from the connection or the last answer on.
const HEAD: Duration = Duration::from_secs(30);
/// How long to wait when the system has no room for another connection.
const NO_ROOM: Duration = Duration::from_millis(100);
/// What goes on and on is logged this often.
const QUIET: Duration = Duration::from_secs(10);
/// File descriptors that are kept for the store and whatever else the server opens.
const OTHER_FILES: u64 = 128;
/// Fewer connections than that are of no use.
const FEWEST: usize = 16;
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\nRetry-After: 2\r\n\r\n";

/// How many connections there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub connections: usize,
    /// From one address; of IPv6, from one network of 64 bits.
    pub per_address: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { connections: 4096, per_address: 2048 }
    }
}

impl Limits {
    /// As many as the system lets this process have.
    pub fn within_files(self) -> Limits {
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        let room = usize::try_from(files.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX).max(FEWEST);
        if room < self.connections {
            tracing::warn!(
                files,
                connections = room,
                "the limit of open files leaves room for fewer connections than limits.connections says: raise it (ulimit -n)"
            );
        }
        Limits { connections: self.connections.min(room), ..self }
    }
}

/// Has the system allow this process as many files as it may have at all.
pub fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

pub fn describe_metrics() {
    metrics::describe_gauge!("countersign_connections", "Connections that are open");
    metrics::describe_counter!("countersign_connections_refused_total", "Connections for which there was no room");
    metrics::describe_counter!("countersign_connections_closed_idle_total", "Idle connections that made room");
    metrics::describe_counter!("countersign_accept_errors_total", "Connections that the system could not give");
}

/// Serves until `stopped` is done; then takes no more, and returns when the requests under way are answered.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    tls: Option<TlsAcceptor>,
    stopped: impl Future<Output = ()>,
) -> std::io::Result<()> {
    serve_with(listener, router, limits, tls, stopped, HEAD).await
}

async fn serve_with(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    tls: Option<TlsAcceptor>,
    stopped: impl Future<Output = ()>,
    head: Duration,
) -> std::io::Result<()> {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(head);
    let connections = GracefulShutdown::new();
    let seats = Seats::new(limits);
    let (mut refused, mut failed) = (Now::default(), Now::default());
    tokio::pin!(stopped);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stopped => break,
        };
        let (connection, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // The peer has gone, or there are no more file descriptors: neither ends the server.
                metrics::counter!("countersign_accept_errors_total").increment(1);
                if let Some(times) = failed.is_due() {
                    tracing::warn!(%error, times, "a connection could not be accepted");
                }
                seats.make_room();
                tokio::time::sleep(NO_ROOM).await;
                continue;
            }
        };
        let Some(seat) = seats.take(address) else {
            refuse(connection, address, &mut refused);
            continue;
        };
        // Answers are small and complete: waiting for more to send would only delay them.
        let _ = connection.set_nodelay(true);
        let (peer, inner) = (seat.peer(), TowerToHyperService::new(router.clone()));
        let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
            let busy = peer.begin();
            request.extensions_mut().insert(peer.line());
            let answer = inner.call(request);
            async move { answer.await.map(|response| response.map(|body| Watched { body, _busy: busy })) }
        });
        let (builder, watcher) = (builder.clone(), connections.watcher());
        match tls.clone() {
            None => {
                let served = watcher.watch(builder.serve_connection(TokioIo::new(connection), service));
                tokio::spawn(sit(seat, served));
            }
            Some(tls) => {
                let served = async move {
                    // As long as the head of a request may take: silent connections must not pile up here either.
                    match tokio::time::timeout(head, tls.accept(connection)).await {
                        Ok(Ok(connection)) => {
                            watcher.watch(builder.serve_connection(TokioIo::new(connection), service)).await
                        }
                        Ok(Err(error)) => {
                            tracing::debug!(%error, "a TLS handshake failed");
                            Ok(())
                        }
                        Err(_) => Ok(()),
                    }
                };
                tokio::spawn(sit(seat, served));
            }
        }
    }
    drop(listener);
    connections.shutdown().await;
    Ok(())
}

/// Serves a connection until it ends, or has to make room.
async fn sit(seat: Seat, served: impl Future<Output = hyper::Result<()>>) {
    let peer = seat.peer();
    tokio::select! {
        ended = served => {
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended early");
            }
        }
        () = peer.makes_room() => {
            if !peer.is_cut_off() {
                metrics::counter!("countersign_connections_closed_idle_total").increment(1);
            }
        }
    }
}

fn refuse(connection: TcpStream, address: SocketAddr, refused: &mut Now) {
    metrics::counter!("countersign_connections_refused_total").increment(1);
    if let Some(times) = refused.is_due() {
        tracing::warn!(%address, times, "there is no room for another connection, and none is idle");
    }
    // What does not fit into an empty buffer is lost.
    let _ = connection.into_std().map(|mut connection| connection.write(FULL));
}

/// Says now and then what happens all the time.
#[derive(Default)]
struct Now {
    last: Option<Instant>,
    times: u64,
}

impl Now {
    /// How often it has happened since it was last said, where it is to be said again.
    fn is_due(&mut self) -> Option<u64> {
        self.times += 1;
        if self.last.is_some_and(|last| last.elapsed() < QUIET) {
            return None;
        }
        self.last = Some(Instant::now());
        Some(std::mem::take(&mut self.times))
    }
}

/// An answer; until it has been sent, its connection is busy.
struct Watched {
    body: Body,
    _busy: Busy,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpSocket;
    use tokio::sync::{Notify, oneshot};
    use tokio::task::JoinHandle;

    struct Stage {
        addr: SocketAddr,
        stop: oneshot::Sender<()>,
        server: JoinHandle<std::io::Result<()>>,
        /// `/slow` answers when it is told to.
        go: Arc<Notify>,
        /// Says that somebody has asked for `/slow`.
        asked: Arc<Notify>,
    }

    impl Stage {
        async fn new(connections: usize, per_address: usize, head: Duration) -> Stage {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let addr = listener.local_addr().expect("an address");
            let (go, asked) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
            let (told, asks) = (go.clone(), asked.clone());
            let slow = move || async move {
                asks.notify_one();
                told.notified().await;
                "at last"
            };
            let router = Router::new()
                .route("/", axum::routing::get(|| async { "here" }))
                .route("/slow", axum::routing::get(slow));
            let (stop, stopped) = oneshot::channel::<()>();
            let stopped = async {
                let _ = stopped.await;
            };
            let limits = Limits { connections, per_address };
            let server = tokio::spawn(serve_with(listener, router, limits, None, stopped, head));
            Stage { addr, stop, server, go, asked }
        }

        async fn connect(&self) -> TcpStream {
            TcpStream::connect(self.addr).await.expect("a connection")
        }

        async fn end(self) {
            drop(self.stop);
            self.server.await.expect("a server").expect("an orderly end");
        }
    }

    const HEAD_MS: Duration = Duration::from_millis(200);
    const LONG: Duration = Duration::from_secs(600);

    /// Asks, and returns the answer; the connection stays.
    async fn get(connection: &mut TcpStream, path: &str) -> Option<String> {
        connection.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"here") && !answer.ends_with(b"at last") {
            if connection.read_buf(&mut answer).await.ok()? == 0 {
                return None;
            }
        }
        String::from_utf8(answer).ok()
    }

    /// Whether the server has closed it, without or with a refusal.
    async fn rest(mut connection: TcpStream) -> String {
        let mut rest = Vec::new();
        let _ = connection.read_to_end(&mut rest).await;
        String::from_utf8_lossy(&rest).into_owned()
    }

    #[tokio::test]
    async fn a_connection_that_says_nothing_is_let_go_and_others_are_served() {
        let stage = Stage::new(10, 10, HEAD_MS).await;
        let silent = stage.connect().await;
        let mut halting = stage.connect().await;
        halting.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n").await.expect("sent");
        let mut quick = stage.connect().await;
        let answer = get(&mut quick, "/").await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

        // Both reads end because the server closes, not because anything was said.
        assert!(!rest(halting).await.contains("200"), "half a request is not answered");
        rest(silent).await;
        drop(quick);
        stage.end().await;
    }

    #[tokio::test]
    async fn the_oldest_idle_connection_makes_room_and_no_busy_one() {
        let stage = Stage::new(3, 3, LONG).await;
        let (mut first, mut second) = (stage.connect().await, stage.connect().await);
        get(&mut first, "/").await.expect("an answer");
        get(&mut second, "/").await.expect("an answer");
        let mut busy = stage.connect().await;
        busy.write_all(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("sent");
        stage.asked.notified().await;

        let mut third = stage.connect().await;
        get(&mut third, "/").await.expect("an answer");
        assert_eq!(rest(first).await, "", "the first has been idle for longest");
        let mut fourth = stage.connect().await;
        get(&mut fourth, "/").await.expect("an answer");
        assert_eq!(rest(second).await, "");
        stage.go.notify_one();
        let mut answer = Vec::new();
        while !answer.ends_with(b"at last") {
            assert_ne!(busy.read_buf(&mut answer).await.expect("an answer"), 0, "it was cut off");
        }
        drop((busy, third, fourth));
        stage.end().await;
    }

    #[tokio::test]
    async fn where_all_are_busy_the_next_is_refused_and_one_address_cannot_take_all() {
        let stage = Stage::new(3, 2, LONG).await;
        let mut busy = Vec::new();
        for _ in 0..2 {
            let mut connection = stage.connect().await;
            connection.write_all(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("sent");
            stage.asked.notified().await;
            busy.push(connection);
        }
        assert!(rest(stage.connect().await).await.starts_with("HTTP/1.1 503"), "two of one address");
        let elsewhere = TcpSocket::new_v4().expect("a socket");
        elsewhere.bind("127.0.0.2:0".parse().expect("an address")).expect("another address");
        let mut other = elsewhere.connect(stage.addr).await.expect("a connection");
        get(&mut other, "/").await.expect("there is room for another address");
        stage.go.notify_waiters();
        for connection in &mut busy {
            let mut answer = Vec::new();
            while !answer.ends_with(b"at last") {
                assert_ne!(connection.read_buf(&mut answer).await.expect("an answer"), 0);
            }
        }
        let mut again = stage.connect().await;
        get(&mut again, "/").await.expect("an idle one of the same address made room");
        get(&mut other, "/").await.expect("the other address keeps its own");
        drop((busy, other, again));
        stage.end().await;
    }
}
