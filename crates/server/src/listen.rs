//! Connections: each is served by a task of its own, and none may take for ever to say what it wants. Who has not sent
//! the whole head of a request in time is let go, so that silent connections cannot pile up.

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::time::Duration;
use tokio::net::TcpListener;

/// How long the head of a request may take, from the connection or the last answer on.
const HEAD: Duration = Duration::from_secs(30);
/// How long to wait when the system has no room for another connection.
const NO_ROOM: Duration = Duration::from_millis(100);

/// Serves until `stopped` is done; then takes no more, and returns when the requests under way are answered.
pub async fn serve(listener: TcpListener, router: Router, stopped: impl Future<Output = ()>) -> std::io::Result<()> {
    serve_with(listener, router, stopped, HEAD).await
}

async fn serve_with(
    listener: TcpListener,
    router: Router,
    stopped: impl Future<Output = ()>,
    head: Duration,
) -> std::io::Result<()> {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(head);
    let connections = GracefulShutdown::new();
    tokio::pin!(stopped);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stopped => break,
        };
        let connection = match accepted {
            Ok((connection, _)) => connection,
            Err(error) => {
                // The peer has gone, or there are no more file descriptors: neither ends the server.
                tracing::debug!(%error, "a connection could not be accepted");
                tokio::time::sleep(NO_ROOM).await;
                continue;
            }
        };
        // Answers are small and complete: waiting for more to send would only delay them.
        let _ = connection.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        let served = connections.watch(builder.serve_connection(TokioIo::new(connection), service));
        tokio::spawn(async move {
            if let Err(error) = served.await {
                tracing::debug!(%error, "a connection ended early");
            }
        });
    }
    drop(listener);
    connections.shutdown().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn a_connection_that_says_nothing_is_let_go_and_others_are_served() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let router = Router::new().route("/", axum::routing::get(|| async { "here" }));
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let stopped = async {
            let _ = stopped.await;
        };
        let server = tokio::spawn(serve_with(listener, router, stopped, Duration::from_millis(200)));

        let mut silent = TcpStream::connect(addr).await.expect("a connection");
        let mut halting = TcpStream::connect(addr).await.expect("a connection");
        halting.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n").await.expect("sent");
        let mut quick = TcpStream::connect(addr).await.expect("a connection");
        quick.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.expect("sent");
        let mut answer = String::new();
        quick.read_to_string(&mut answer).await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("here"), "{answer}");

        // Both reads end because the server closes, not because anything was said.
        let mut rest = Vec::new();
        let _ = halting.read_to_end(&mut rest).await;
        assert!(!String::from_utf8_lossy(&rest).contains("200"), "half a request is not answered");
        let _ = silent.read_to_end(&mut rest).await;
        drop(stop);
        server.await.expect("a server").expect("an orderly end");
    }
}
