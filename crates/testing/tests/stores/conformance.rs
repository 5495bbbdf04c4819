//! The conformance suite on both stores: every case is a function of `countersign_testing::conformance`.

use countersign_testing::conformance;
use countersign_testing::place::{Kind, Place};

macro_rules! suite {
    ($($case:ident,)*) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $case() -> anyhow::Result<()> {
                super::run(super::Kind::Sqlite, async |place| super::conformance::$case(place).await).await
            })*
        }

        mod postgres {
            $(#[tokio::test]
            async fn $case() -> anyhow::Result<()> {
                super::run(super::Kind::Postgres, async |place| super::conformance::$case(place).await).await
            })*
        }
    };
}

suite! {
    nothing_is_found_in_an_empty_store,
    every_row_reads_back,
    processes_are_found_by_every_axis,
    steps_are_found_by_every_axis,
    assignments_are_found_by_every_axis,
    records_are_found_by_every_axis,
    holds_are_found_by_every_axis,
    what_may_be_purged_is_listed_in_order,
    a_purge_takes_its_answer_along,
    a_stale_unit_is_lost_alone,
    an_instance_is_begun_once,
    a_batch_under_another_registry_writes_nothing,
    one_registry_change_at_a_time,
    checks_tell_what_is_current,
    a_batch_with_data_the_store_cannot_take_writes_nothing,
    keys_are_recalled_until_they_expire,
    a_key_passes_on,
    a_key_is_good_for_one_commit,
    a_key_may_be_used_again_when_its_time_is_over,
    expired_keys_are_forgotten_in_portions,
    everything_survives_reopening,
    a_newer_schema_is_refused,
    a_foreign_file_is_refused_untouched,
    one_bad_call_costs_its_neighbours_nothing,
    an_empty_log_says_so,
    a_log_is_named_once,
    every_record_gets_one_place_in_an_order_that_the_spec_allows,
    an_append_continues_the_log_or_writes_nothing,
    a_lease_ends_by_release_or_in_time_and_fences,
    checkpoints_are_kept_and_only_their_notes_grow,
    a_log_changes_its_key_with_a_note_or_not_at_all,
    what_was_taken_out_of_the_log_shows,
    an_older_store_is_sealed_in_order,
}

async fn run(kind: Kind, case: impl AsyncFnOnce(&Place) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    case(&place).await?;
    place.remove().await
}
