//! Races on one engine and on two engines of one database; the long form is `make torture`.

use countersign_testing::place::{Kind, Place};
use countersign_testing::races::{self, Arena};

macro_rules! races {
    ($($name:ident: $race:expr;)*) => {
        mod sqlite {
            races!(@ (super::Kind::Sqlite, 1) $($name: $race;)*);
        }
        mod postgres {
            races!(@ (super::Kind::Postgres, 1) $($name: $race;)*);
        }
        mod two_engines {
            races!(@ (super::Kind::Postgres, 2) $($name: $race;)*);
        }
    };
    (@ ($kind:expr, $engines:expr) $($name:ident: $race:expr;)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() -> anyhow::Result<()> {
            super::run($kind, $engines, $race).await
        })*
    };
}

races! {
    one_approval_one_firing: async |arena| countersign_testing::races::one_approval_one_firing(arena, 4).await;
    every_turn_of_a_loop_counts: async |arena| countersign_testing::races::every_turn_of_a_loop_counts(arena, 10).await;
    nothing_waits_in_a_state_that_was_left:
        async |arena| countersign_testing::races::nothing_waits_in_a_state_that_was_left(arena, 500).await;
    no_firing_after_a_revocation: async |arena| countersign_testing::races::no_firing_after_a_revocation(arena, 1, 10).await;
    a_gate_is_decided_once: async |arena| countersign_testing::races::a_gate_is_decided_once(arena, 1, 30).await;
    one_key_one_effect: async |arena| countersign_testing::races::one_key_one_effect(arena, 10).await;
    keys_in_any_order: async |arena| countersign_testing::races::keys_in_any_order(arena, 1, 10).await;
    fresh_documents_in_any_order: async |arena| countersign_testing::races::fresh_documents_in_any_order(arena, 10).await;
    no_purge_under_a_hold: async |arena| countersign_testing::races::no_purge_under_a_hold(arena, 500).await;
    a_record_is_purged_once: async |arena| countersign_testing::races::a_record_is_purged_once(arena, 6).await;
    no_subject_outlives_its_purge: async |arena| countersign_testing::races::no_subject_outlives_its_purge(arena, 40).await;
    random_clients: async |arena| countersign_testing::races::random_clients(arena, 1, 4, 250).await.map(|_| ());
}

async fn run(kind: Kind, engines: usize, race: impl AsyncFnOnce(&Arena) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let arena = Arena::with(Place::new(kind).await?, engines, races::keep_for_a_moment).await?;
    race(&arena).await?;
    arena.end().await.map(|_| ())
}
