// The auditor's and the administrator's side: records, verification, grants, keys and sessions.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  accessibleInThemes,
  authenticator,
  caller,
  openPage,
  person,
  publish,
  setUp,
  signIn,
} from "./support.mjs";

const ORDER = `
kind: process
name: order
states: [open, closed]
initial_state: open
terminal_states: [closed]
transitions:
  - {from: open, action: close, to: closed}
`;

let server;
let browser;
let admin;

setUp(async (made) => {
  ({ server, browser } = made);
  admin = caller(server);
  await publish(server, ORDER);
});

test("the ledger says what waits for a seal and when all was last verified, without a reload", async () => {
  const auditor = await person(server, "warden", ["audit:read", "audit:seal"], "Wanda Warden");
  const page = await openPage(browser);
  await signIn(page, server, auditor);
  await page.goto(`${server.origin}/ledger`);
  await page.getByText("Nobody has verified everything here yet.").waitFor();
  await page.getByText("Nothing: every record is sealed").waitFor();
  await caller(server, auditor)("POST", "/v1/ledger/verify-log", {});
  await page.getByText(/The last verification of everything found no fault in \d+ records\./).waitFor();
  await page.locator("main").getByText("Wanda Warden").first().waitFor();
  // A record that is made now is sealed under the eyes of the reader.
  const start = { definition: "order", subject_ref: "order-live" };
  const { instance_id } = await admin("POST", "/v1/processes", start);
  await page.goto(`${server.origin}/ledger?instance_id=${instance_id}`);
  await page
    .getByText(/in the log at \d+/)
    .first()
    .waitFor();
  assert.deepEqual(page.complaints, []);
});

test("an auditor verifies a record and a process in plain words", async () => {
  const auditor = await person(server, "auditor", ["audit:read"], "Ada Auditor");
  const start = { definition: "order", subject_ref: "order-7" };
  const { instance_id } = await admin("POST", "/v1/processes", start);
  await admin("POST", `/v1/processes/${instance_id}/transitions`, { action: "close", reason: "paid" });
  await admin("POST", "/v1/ledger/seal", {});
  const page = await openPage(browser);
  await signIn(page, server, auditor);
  await page.goto(`${server.origin}/ledger?instance_id=${instance_id}`);
  await page.getByRole("link", { name: "Transition fired" }).click();
  const record = page.getByRole("complementary", { name: "Record" });
  await record.getByText("attested by the server").waitFor();
  await record.getByText(/in the log at \d+/).waitFor();
  await record.getByText("paid").waitFor();
  await record.getByRole("button", { name: "Verify this record" }).click();
  await record.getByRole("status").getByText("Verified.").waitFor();
  await page.getByRole("button", { name: "Verify now" }).click();
  await page.getByText(/Verified: \d+ records/).waitFor();
  // The open record is part of the address.
  await page.reload();
  await record.getByText("paid").waitFor();
  assert.deepEqual(page.complaints, []);
});

test("an administrator sees who might do what at a point in time", async () => {
  await person(server, "leaver", ["runs:read"]);
  const list = async () => (await admin("GET", "/v1/grants?subject_ref=leaver")).items[0];
  const { grant_id } = await list();
  const page = await openPage(browser, { timezoneId: "UTC" });
  await signIn(page, server, server.token);
  await page.goto(`${server.origin}/admin?tab=actors&subject_ref=leaver`);
  await page.getByRole("button", { name: "Revoke runs:read of leaver" }).click();
  await page.getByRole("button", { name: "Revoke runs:read of leaver" }).waitFor({ state: "detached" });
  const grant = await list();
  assert.equal(grant.grant_id, grant_id);
  assert.equal(grant.status, "revoked");
  const between = (Date.parse(grant.granted_at) + Date.parse(grant.revoked_at)) / 2;
  const local = (ms) => new Date(ms).toISOString().slice(0, 23);
  await page.goto(`${server.origin}/admin?tab=grants&subject_ref=leaver`);
  await page.getByLabel("As of").fill(local(between));
  await page.getByText("In force on").waitFor();
  await page.getByRole("cell", { name: "runs:read", exact: true }).waitFor();
  await page.getByLabel("As of").fill(local(Date.parse(grant.revoked_at) + 1));
  await page.getByText("No grants match").waitFor();
});

test("an administrator registers an actor, grants a scope and issues tokens", async () => {
  const page = await openPage(browser);
  await signIn(page, server, server.token);
  await page.goto(`${server.origin}/admin?tab=actors`);
  await page.getByLabel("Actor (never reused)").fill("newcomer");
  await page.getByLabel("Name", { exact: true }).fill("Nora Newcomer");
  await page.getByRole("button", { name: "Register" }).click();
  const shown = page.getByRole("status").filter({ hasText: "The token of newcomer" });
  const token = await shown.getByRole("button").getAttribute("title");
  await page.getByRole("link", { name: "Nora Newcomer" }).click();
  await page.getByLabel("Grant a scope to newcomer").fill("audit:read");
  await page.getByRole("button", { name: "Grant", exact: true }).click();
  await page.getByRole("cell", { name: "audit:read", exact: true }).waitFor();
  const theirs = await openPage(browser);
  await signIn(theirs, server, token);
  await theirs.goto(`${server.origin}/ledger`);
  await theirs.getByRole("heading", { name: "Newest checkpoint" }).waitFor();
  // The session of the newcomer is seen and ended; their page notices by itself.
  await theirs.goto(`${server.origin}/inbox`);
  await theirs.getByText("Nothing waits for your decision").waitFor();
  await page.reload();
  await page.getByRole("button", { name: "End", exact: true }).click();
  await page.getByText("Not signed in anywhere.").waitFor();
  await theirs.getByText("Your session has ended.").waitFor();
  assert.deepEqual([...page.complaints, ...theirs.complaints], []);
});

test("a person ends a session of theirs in another browser, and removes a passkey", async () => {
  const token = await person(server, "mobile", []);
  const forgotten = await openPage(browser);
  await signIn(forgotten, server, token);
  const page = await openPage(browser);
  await authenticator(page);
  await signIn(page, server, token);
  await page.goto(`${server.origin}/admin`);
  await page.getByText("This browser").waitFor();
  await page.getByRole("button", { name: "End", exact: true }).click();
  await page.getByText("Another browser").waitFor({ state: "detached" });
  await forgotten.getByText("Your session has ended.").waitFor();
  await page.getByLabel("Name of the new passkey").fill("old phone");
  await page.getByRole("button", { name: "Add a passkey" }).click();
  await page.getByRole("button", { name: "Remove the passkey “old phone”" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Remove", exact: true }).click();
  await page.getByRole("dialog").waitFor({ state: "hidden" });
  await page.getByText("old phone").waitFor({ state: "detached" });
  const { keys } = await admin("GET", "/v1/actors/mobile/keys");
  assert.deepEqual(
    keys.map((key) => key.status),
    ["revoked"],
  );
});

const NIGHTLY = `
kind: workflow
name: nightly
order: linear
schedule: [{cron: "0 3 * * *", timeZone: UTC}]
steps:
  - {name: count, run: worker, queue: stock, idempotent: true}
`;

test("an operator pauses a schedule with a reason, resumes it and starts it by hand", async () => {
  await publish(server, NIGHTLY);
  const scopes = ["runs:read", "runs:control", "runs:start"];
  const token = await person(server, "olga", scopes, "Olga Operator");
  const page = await openPage(browser);
  await signIn(page, server, token);
  await page.goto(`${server.origin}/admin?tab=schedules`);
  const row = page.getByRole("row").filter({ hasText: "nightly" });
  await row.getByText("On", { exact: true }).waitFor();
  await row.getByRole("button", { name: "Pause nightly" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("Times that pass meanwhile are lost.").waitFor();
  await accessibleInThemes(page, "a dialog");
  await dialog.getByLabel("Reason").fill("stock-taking");
  await dialog.getByRole("button", { name: "Pause" }).click();
  await row.getByText("“stock-taking”").waitFor();
  await row.getByText("Olga Operator").waitFor();
  await accessibleInThemes(page, "schedules");
  await row.getByRole("button", { name: "Start now" }).click();
  await page.getByRole("status").getByText("A run has started:").waitFor();
  await row.getByRole("button", { name: "Resume nightly" }).click();
  await dialog.getByRole("button", { name: "Resume" }).click();
  await row.getByText("On", { exact: true }).waitFor();
  await page.getByRole("link", { name: "open it" }).click();
  await page.getByRole("button", { name: /^count/ }).waitFor();
  const { items } = await admin("GET", "/v1/schedules");
  assert.equal(items[0].state, "idle");
  assert.deepEqual(page.complaints, []);
});

test("an administrator revokes a key of another person, with a reason", async () => {
  const token = await person(server, "keyed", [], "Kim Keyed");
  const theirs = await openPage(browser);
  await authenticator(theirs);
  await signIn(theirs, server, token);
  await theirs.goto(`${server.origin}/admin`);
  await theirs.getByLabel("Name of the new passkey").fill("lost phone");
  await theirs.getByRole("button", { name: "Add a passkey" }).click();
  await theirs.getByRole("listitem").filter({ hasText: "lost phone" }).waitFor();
  const page = await openPage(browser);
  await signIn(page, server, server.token);
  await page.goto(`${server.origin}/admin?tab=actors&subject_ref=keyed`);
  const row = page.getByRole("listitem").filter({ hasText: "lost phone" });
  await row.getByRole("button", { name: "Revoke" }).click();
  await page.getByRole("dialog").getByLabel("Reason").fill("the phone was lost");
  await page.getByRole("dialog").getByRole("button", { name: "Revoke" }).click();
  await row.getByText("revoked").waitFor();
  const { items } = await admin("GET", "/v1/ledger/records?action_ref=key_revoked&order=desc&limit=1");
  assert.deepEqual([items[0].actor_ref, items[0].payload.reason], ["admin", "the phone was lost"]);
  assert.deepEqual([...page.complaints, ...theirs.complaints], []);
});
