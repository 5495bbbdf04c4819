//! One suite that every store must pass: the duties of the port (`countersign_engine::port`), each as a function over
//! a fresh place. [`story`] gives the data to write, [`model`] the data that must come back.

mod engine;
mod fence;
mod keys;
pub mod log;
pub mod model;
mod older;
mod opening;
mod reads;
mod retention;
mod story;

pub use engine::one_bad_call_costs_its_neighbours_nothing;
pub use fence::{
    a_batch_under_another_registry_writes_nothing, a_batch_with_data_the_store_cannot_take_writes_nothing,
    a_stale_unit_is_lost_alone, an_instance_is_begun_once, checks_tell_what_is_current, one_registry_change_at_a_time,
};
pub use keys::{
    a_key_is_good_for_one_commit, a_key_may_be_used_again_when_its_time_is_over, a_key_passes_on,
    expired_keys_are_forgotten_in_portions, keys_are_recalled_until_they_expire,
};
pub use log::{
    a_lease_ends_by_release_or_in_time_and_fences, a_log_changes_its_key_with_a_note_or_not_at_all,
    a_log_is_named_once, an_append_continues_the_log_or_writes_nothing, an_empty_log_says_so,
    an_older_store_is_sealed_in_order, checkpoints_are_kept_and_only_their_notes_grow,
    every_record_gets_one_place_in_an_order_that_the_spec_allows, what_was_taken_out_of_the_log_shows,
};
pub use opening::{a_foreign_file_is_refused_untouched, a_newer_schema_is_refused, everything_survives_reopening};
pub use reads::{
    assignments_are_found_by_every_axis, every_row_reads_back, nothing_is_found_in_an_empty_store,
    processes_are_found_by_every_axis, records_are_found_by_every_axis, steps_are_found_by_every_axis,
};

pub use retention::{
    a_purge_takes_its_answer_along, holds_are_found_by_every_axis, what_may_be_purged_is_listed_in_order,
};

use crate::place::Place;
use anyhow::{Context, ensure};
use countersign_engine::port::{Batch, Committed, Page, Reader, StoreError, Unit, Verdict, Writer};
use model::Model;
use std::sync::Arc;
use story::Story;
use uuid::Uuid;

/// A fresh store, opened, and the story to write to it.
struct Bench {
    writer: Box<dyn Writer>,
    reader: Arc<dyn Reader>,
    story: Story,
    /// What has been written so far.
    model: Model,
}

impl Bench {
    /// The registry is set up, and there is nothing else.
    async fn with_registry(place: &Place) -> anyhow::Result<Bench> {
        let mut bench = Bench::empty(place).await?;
        for batch in bench.story.registry.clone() {
            bench.write(&batch).await?;
        }
        Ok(bench)
    }

    async fn with_everything(place: &Place) -> anyhow::Result<Bench> {
        let mut bench = Bench::empty(place).await?;
        for batch in bench.story.all().cloned().collect::<Vec<_>>() {
            bench.write(&batch).await?;
        }
        Ok(bench)
    }

    async fn empty(place: &Place) -> anyhow::Result<Bench> {
        let story = story::tell().await?;
        let (writer, reader) = place.store().await?.into_parts();
        Ok(Bench { writer, reader, story, model: Model::default() })
    }

    /// The registry sequence after the story's first part.
    fn registry_sequence(&self) -> u64 {
        self.story.processes.first().map_or(0, |batch| batch.registry_sequence)
    }

    /// Units of processes as one batch under the registry as it stands.
    fn batch(&self, units: Vec<Unit>) -> Batch {
        let registry_sequence = self.registry_sequence();
        Batch { registry_sequence, changes_registry: false, units, checks: vec![] }
    }

    async fn commit(&mut self, batch: &Batch) -> Result<Committed, StoreError> {
        self.writer.commit(batch).await
    }

    /// Commits what must be won, every unit of it.
    async fn write(&mut self, batch: &Batch) -> anyhow::Result<()> {
        let committed = self.commit(batch).await?;
        let won = batch.units.iter().map(|_| Verdict::Won).collect();
        ensure!(committed == Committed::Done(won), "not won: {committed:?}");
        batch.units.iter().for_each(|unit| self.model.write(unit));
        Ok(())
    }

    async fn write_units(&mut self, units: Vec<Unit>) -> anyhow::Result<()> {
        let batch = self.batch(units);
        self.write(&batch).await
    }

    /// The store holds what was written: all of it, and nothing else.
    async fn require_model(&mut self) -> anyhow::Result<()> {
        reads::require_everything(&*self.reader, &self.model).await?;
        reads::require_loads(&mut *self.writer, &self.model).await
    }
}

/// A query finds exactly `expected`, forwards and backwards, whatever the size of the pages.
async fn require_found<T>(
    what: &str,
    expected: Vec<(Uuid, String)>,
    read: impl AsyncFn(&Page) -> Result<Vec<T>, StoreError>,
    show: impl Fn(&T) -> (Uuid, String),
) -> anyhow::Result<()> {
    for (descending, limit) in [(false, 1000), (true, 1000), (false, 1), (false, 3), (true, 2)] {
        let mut wanted = expected.clone();
        if descending {
            wanted.reverse();
        }
        let mut found: Vec<(Uuid, String)> = vec![];
        loop {
            let page = Page { after: found.last().map(|(id, _)| *id), limit, descending };
            let items = read(&page).await.with_context(|| format!("{what}, {page:?}"))?;
            ensure!(items.len() <= limit, "{what}: more than a page");
            found.extend(items.iter().map(&show));
            if items.len() < limit {
                break;
            }
        }
        let ids = |list: &[(Uuid, String)]| list.iter().map(|(id, _)| *id).collect::<Vec<_>>();
        ensure!(
            ids(&found) == ids(&wanted),
            "{what}, {limit} at a time, descending {descending}: found {:?}, not {:?}",
            ids(&found),
            ids(&wanted)
        );
        for ((_, found), (_, wanted)) in found.iter().zip(&wanted) {
            ensure!(found == wanted, "{what} came back as\n  {found}\nbut was written as\n  {wanted}");
        }
    }
    Ok(())
}
