//! The HTTP contract, tested from outside: a server on a free port, an SQLite store in a temporary
//! directory, and requests as any client would send them.

#![expect(clippy::expect_used, reason = "a test's helpers may fail the test")]

#[path = "http_api/adversaries.rs"]
mod adversaries;
#[path = "http_api/auth.rs"]
mod auth;
#[path = "http_api/authority.rs"]
mod authority;
#[path = "http_api/bad_input.rs"]
mod bad_input;
#[path = "http_api/browsers.rs"]
mod browsers;
#[path = "http_api/console.rs"]
mod console;
#[path = "http_api/definition_files.rs"]
mod definition_files;
#[path = "http_api/demo.rs"]
mod demo;
#[path = "http_api/description.rs"]
mod description;
#[path = "http_api/door.rs"]
mod door;
#[path = "http_api/drawing.rs"]
mod drawing;
#[path = "http_api/executors.rs"]
mod executors;
#[path = "http_api/failed_attempts.rs"]
mod failed_attempts;
#[path = "http_api/following.rs"]
mod following;
#[path = "http_api/fuzz.rs"]
mod fuzz;
#[path = "http_api/governance.rs"]
mod governance;
#[path = "http_api/heavy.rs"]
mod heavy;
#[path = "http_api/idempotency.rs"]
mod idempotency;
#[path = "http_api/lifecycle.rs"]
mod lifecycle;
#[path = "http_api/lists.rs"]
mod lists;
#[path = "http_api/log.rs"]
mod log;
#[path = "http_api/machines.rs"]
mod machines;
#[cfg(feature = "nats")]
#[path = "http_api/nats.rs"]
mod nats;
#[path = "http_api/notify.rs"]
mod notify;
#[path = "http_api/passkeys.rs"]
mod passkeys;
#[path = "http_api/people.rs"]
mod people;
#[path = "http_api/proposals.rs"]
mod proposals;
#[path = "http_api/quorum.rs"]
mod quorum;
#[path = "http_api/reading.rs"]
mod reading;
#[path = "http_api/regulated.rs"]
mod regulated;
#[path = "http_api/replays.rs"]
mod replays;
#[path = "http_api/requests.rs"]
mod requests;
#[path = "http_api/resources.rs"]
mod resources;
#[path = "http_api/retention.rs"]
mod retention;
#[path = "http_api/run_commands.rs"]
mod run_commands;
#[path = "http_api/run_pictures.rs"]
mod run_pictures;
#[path = "http_api/runbook_executors.rs"]
mod runbook_executors;
#[path = "http_api/schedules.rs"]
mod schedules;
#[path = "http_api/secrets.rs"]
mod secrets;
#[path = "http_api/sessions.rs"]
mod sessions;
#[path = "http_api/sidecar.rs"]
mod sidecar;
#[path = "http_api/signed.rs"]
mod signed;
#[path = "http_api/starts.rs"]
mod starts;
#[path = "http_api/step_model.rs"]
mod step_model;
#[path = "http_api/story.rs"]
mod story;
#[path = "http_api/stream.rs"]
mod stream;
#[path = "http_api/substitutes.rs"]
mod substitutes;
#[path = "http_api/support.rs"]
mod support;
#[path = "http_api/trays.rs"]
mod trays;
#[path = "http_api/webhooks.rs"]
mod webhooks;
#[path = "http_api/words.rs"]
mod words;
