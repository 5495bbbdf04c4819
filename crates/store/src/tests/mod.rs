//! Tests of what runs ask of the stores, on a real SQLite file and a real PostgreSQL (`scripts/with-postgres.sh`).

mod fence;
mod lists;
mod outbox;
pub mod place;
mod plans;
mod runs;
pub mod samples;
mod sessions;

/// Each of these functions as a test on both stores.
macro_rules! on_both {
    ($($name:ident,)*) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(&$crate::tests::place::Place::sqlite()).await
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(&$crate::tests::place::Place::postgres().await).await
            })*
        }
    };
}
pub(crate) use on_both;
