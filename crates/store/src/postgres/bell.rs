//! Nodes on one PostgreSQL tell each other that there is work, with LISTEN and NOTIFY on a separate connection.
//!
//! NOTIFY is never part of the transaction that makes the work: it holds a lock of the whole database until its
//! transaction has committed, flush included. Alone it writes nothing to the log and ends at once.

use super::connect::{Settings, failed};
use async_trait::async_trait;
use countersign_engine::port::{Bell, StoreError};
use std::future::poll_fn;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls};

const CHANNEL: &str = "countersign";

pub struct PostgresBell {
    settings: Settings,
    line: Option<Line>,
}

struct Line {
    client: Client,
    heard: mpsc::UnboundedReceiver<String>,
}

impl PostgresBell {
    pub fn new(settings: Settings) -> Self {
        PostgresBell { settings, line: None }
    }

    /// Connected and listening.
    async fn line(&mut self) -> Result<&mut Line, StoreError> {
        let line = match self.line.take().filter(|line| !line.client.is_closed()) {
            Some(line) => line,
            None => {
                let (said, heard) = mpsc::unbounded_channel();
                let client = match &self.settings.tls {
                    None => {
                        let (client, connection) = self.settings.config.connect(NoTls).await.map_err(failed)?;
                        tokio::spawn(drive(connection, said));
                        client
                    }
                    Some(tls) => {
                        let (client, connection) = self.settings.config.connect(tls.clone()).await.map_err(failed)?;
                        tokio::spawn(drive(connection, said));
                        client
                    }
                };
                client.batch_execute(&format!("LISTEN {CHANNEL}")).await.map_err(failed)?;
                Line { client, heard }
            }
        };
        Ok(self.line.insert(line))
    }
}

#[async_trait]
impl Bell for PostgresBell {
    async fn ring(&mut self, words: &[String]) -> Result<(), StoreError> {
        let client = &self.line().await?.client;
        let sql = "SELECT pg_notify($1, word) FROM UNNEST($2::text[]) AS word";
        client.execute(sql, &[&CHANNEL, &words]).await.map(|_| ()).map_err(failed)
    }

    async fn hear(&mut self) -> Result<String, StoreError> {
        let heard = self.line().await?.heard.recv().await;
        heard.ok_or_else(|| {
            self.line = None;
            StoreError::Transient("the listening connection ended".to_owned())
        })
    }
}

/// Drives a connection and passes on what others say.
async fn drive<S, T>(mut connection: Connection<S, T>, said: mpsc::UnboundedSender<String>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
        match message {
            Ok(AsyncMessage::Notification(notification)) => {
                if said.send(notification.payload().to_owned()).is_err() {
                    return;
                }
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "the listening connection ended");
                return;
            }
        }
    }
}
