//! The Rust side of Countersign's HTTP contract: the [`wire`] types, which the server uses too, and a
//! [`Client`] with one method per route.
//!
//! ```no_run
//! # async fn example() -> Result<(), countersign_client::Error> {
//! use countersign_client::{Client, wire::FireTransition};
//!
//! let client = Client::new("http://127.0.0.1:7433")?.with_token("…")?;
//! let fired = client.fire("0198…", &FireTransition { action: "begin-testing".into(), reason: None }).await?;
//! println!("now {}", fired.body.new_state);
//! # Ok(()) }
//! ```
//!
//! [`worker`] is the loop of a worker on the steps of a queue.
//!
//! The client never repeats a request by itself: whether to ask again is the caller's decision, with
//! [`Client::with_idempotency_key`] to make it safe.

mod client;
mod error;
mod routes;
mod sign;
mod stream;
pub mod wire;
pub mod worker;

pub use client::{Answer, Client, DEFAULT_SERVER, Format};
pub use error::Error;
pub use sign::{ActorKey, Signing, signed_action, signed_template};
pub use stream::{EventStream, StreamEvent};
