//! A worker for the queue `orders`, whose steps are VALIDATE and SHIP. Start a server, publish a definition with these
//! steps, start a run, then:
//!
//! ```sh
//! COUNTERSIGN_TOKEN=$(cat countersign-data/admin.token) cargo run -p countersign-client --example worker
//! ```

use countersign_client::worker::{Failure, Worker, told_to_stop};
use countersign_client::{Client, DEFAULT_SERVER, Error};
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let token = std::env::var("COUNTERSIGN_TOKEN").unwrap_or_default();
    let client = Client::new(DEFAULT_SERVER)?.with_token(&token)?;

    Worker::new(client, "orders")
        .concurrency(4)
        .on("VALIDATE", |task| async move {
            let order: Value = task.input()?;
            let total = order["total"].as_f64().ok_or_else(|| Failure::dead("the order has no total"))?;
            Ok(json!({ "total": total }))
        })
        .on("SHIP", |task| async move {
            println!("attempt {} at shipping, under key {}", task.attempt(), task.idempotency_key());
            Ok(json!({ "shipped": true }))
        })
        .on_compensation("SHIP", |_| async { Ok(()) })
        .run(told_to_stop())
        .await
}
