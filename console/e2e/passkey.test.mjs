// Passkeys: registered, used to sign in and to sign decisions; and the evidence that they leave.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { logKey, verdicts } from "./evidence.mjs";
import {
  accessible,
  authenticator,
  caller,
  openPage,
  person,
  publish,
  setUp,
  signIn,
  signOut,
} from "./support.mjs";

const SHIPPED = readFileSync(new URL("../../definitions/batch-release.yaml", import.meta.url), "utf8");
/** The shipped definition, with two people for the release instead of one. */
const RELEASE = SHIPPED.replace(
  /QP-sign-off: \{approver_ref: qp_director_santos,/,
  "QP-sign-off: {approvers: [qp_director_santos, qa_head_meyer], quorum: {rule: all-of-n},",
);

const SHIPMENT = `
kind: workflow
name: shipment
order: dag
gate_spec:
  go: {approver_ref: qp_director_santos, scope: "shipment:go", due: 4h}
steps:
  - {name: ship, run: worker, queue: dock, idempotent: true, gate: go, request: {item: "\${input.item}", amount: "\${input.amount}"}}
`;

let server;
let browser;
let tokens;
let directory;
/** The browsers of people with a passkey, by token: a passkey is in one of them only. */
const browsers = new Map();

setUp(async (made) => {
  ({ server, browser } = made);
  directory = mkdtempSync(join(tmpdir(), "countersign-bundle-"));
  tokens = {
    santos: await person(server, "qp_director_santos", [], "Maria Santos"),
    meyer: await person(server, "qa_head_meyer", ["workflows:read", "audit:read"], "Jonas Meyer"),
    chen: await person(
      server,
      "operator_chen",
      ["workflows:start", "workflows:open-gate", "workflows:fire", "workflows:read", "audit:read"],
      "Li Chen",
    ),
  };
  assert.notEqual(RELEASE, SHIPPED);
  await publish(server, RELEASE);
  await publish(server, SHIPMENT);
});
after(() => {
  rmSync(directory, { recursive: true, force: true });
});

/** A batch whose tests are complete. */
async function batch(subject) {
  const chen = caller(server, tokens.chen);
  const start = { definition: "batch-release", subject_ref: subject };
  const { instance_id } = await chen("POST", "/v1/processes", start);
  for (const action of ["begin-testing", "complete-tests"])
    await chen("POST", `/v1/processes/${instance_id}/transitions`, { action });
  return instance_id;
}

async function ask(id) {
  await caller(server, tokens.chen)("POST", `/v1/processes/${id}/gates`, { action: "release" });
}

/** Signs in with a token, registers a passkey, signs out, and signs in with the passkey. */
async function withPasskey(token, label) {
  const known = browsers.get(token);
  if (known) {
    await known.goto(`${server.origin}/inbox`);
    return known;
  }
  const page = await openPage(browser);
  browsers.set(token, page);
  page.keys = await authenticator(page);
  await signIn(page, server, token);
  await addPasskey(page, label);
  await signOut(page);
  await page.getByRole("button", { name: "Sign in with a passkey" }).click();
  await page.waitForURL(/\/inbox/);
  return page;
}

async function addPasskey(page, label) {
  await page.goto(`${server.origin}/admin`);
  await page.getByLabel("Name of the new passkey").fill(label);
  await page.getByRole("button", { name: "Add a passkey" }).click();
  await page.getByRole("listitem").filter({ hasText: label }).waitFor();
}

async function decided(id) {
  const query = `instance_id=${id}&action_ref=gate_decided&order=asc`;
  return (await caller(server)("GET", `/v1/ledger/records?${query}`)).items;
}

/** Both verifiers accept it. */
async function accepted(t, bundle) {
  const { binary, python } = await verdicts(bundle, await logKey(server));
  assert.equal(binary.result, "verified", JSON.stringify(binary));
  if (python) assert.equal(python.result, "verified", JSON.stringify(python));
  else t.diagnostic("SKIPPED: verify.py has no Python; scripts/vectors.sh makes it");
}

async function proved(t, id) {
  const answer = await fetch(`${server.origin}/v1/ledger/export?instance_id=${id}`, {
    headers: { authorization: `Bearer ${server.token}` },
  });
  const bundle = join(directory, `${id}.zip`);
  writeFileSync(bundle, Buffer.from(await answer.arrayBuffer()));
  await accepted(t, bundle);
}

test("the batch release through three people's eyes", async (t) => {
  const id = await batch("br-2026-0412");
  const operator = await openPage(browser);
  await signIn(operator, server, tokens.chen);
  await operator.goto(`${server.origin}/processes/${id}`);
  await operator.getByRole("button", { name: "Ask for release" }).click();
  await operator.getByRole("dialog").getByLabel("Reason").fill("all tests passed");
  await operator.getByRole("dialog").getByRole("button", { name: "Record" }).click();
  await operator.getByRole("dialog").waitFor({ state: "hidden" });

  // The first approver may read nothing but what is asked of her.
  const santos = await withPasskey(tokens.santos, "Santos' laptop");
  await santos.getByRole("heading", { name: "release of br-2026-0412" }).waitFor();
  await santos.getByText("approval of release of br-2026-0412 as qp_director_santos").waitFor();
  await santos.getByText("rejection of release of br-2026-0412 as qp_director_santos").waitFor();
  await santos.getByLabel("Reason").fill("batch record reviewed");
  await santos.getByRole("button", { name: "Approve" }).click();
  const first = santos.getByRole("status").filter({ hasText: "You signed:" });
  await first.getByText("approval of release of br-2026-0412 as qp_director_santos").waitFor();
  await first.getByText("Signed with your passkey.").waitFor();
  await accessible(santos, "what was signed");

  // The second one sees the first one's decision, and the record of her own.
  const meyer = await withPasskey(tokens.meyer, "Meyer's phone");
  await meyer.getByText("1 of 2 approved").waitFor();
  await meyer.getByText("“batch record reviewed”").waitFor();
  await meyer.getByLabel("Reason").fill("deviations closed");
  await meyer.getByRole("button", { name: "Approve" }).click();
  const second = meyer.getByRole("status").filter({ hasText: "You signed:" });
  await second.getByRole("link", { name: /No\. \d+ of this process/ }).waitFor();

  const records = await decided(id);
  assert.deepEqual(
    records.map((record) => [record.actor_ref, record.assurance]),
    [
      ["qp_director_santos", "passkey_signed"],
      ["qa_head_meyer", "passkey_signed"],
    ],
  );
  assert.equal(await second.getByRole("link").textContent(), `No. ${records[1].sequence} of this process`);

  await operator.getByRole("button", { name: "release", exact: true }).click();
  await operator.getByRole("dialog").getByRole("button", { name: "Record" }).click();
  await operator.getByRole("dialog").waitFor({ state: "hidden" });
  await operator.getByText("released").first().waitFor();

  await operator.goto(`${server.origin}/ledger?instance_id=${id}`);
  await operator.getByText("signed with a passkey").first().waitFor();
  const download = operator.waitForEvent("download");
  await operator.getByRole("link", { name: "Download the evidence bundle" }).click();
  const bundle = join(directory, "bundle.zip");
  await (await download).saveAs(bundle);
  await accepted(t, bundle);
  for (const page of [operator, santos, meyer]) assert.deepEqual(page.complaints, []);
});

test("the gate of a run is decided with a passkey, on what it asks", async (t) => {
  const input = { item: "vaccine", amount: 1200 };
  const { run_id } = await caller(server)("POST", "/v1/runs", {
    definition: "shipment",
    subject_ref: "sh-77",
    input,
  });
  const page = await withPasskey(tokens.santos, "Santos' laptop");
  await page.getByRole("link", { name: /ship of sh-77.*due in/i }).click();
  await page.getByRole("heading", { name: "ship of sh-77" }).waitFor();
  await page.getByRole("article").getByText("vaccine").waitFor();
  await page.getByRole("article").getByText("1,200").waitFor();
  const way = page.getByRole("region", { name: "The way so far" });
  await way.getByText("ship", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Approve" }).click();
  await page.getByText("You signed:").waitFor();
  const [record] = await decided(run_id);
  assert.equal(record.assurance, "passkey_signed");
  await proved(t, run_id);
});

test("a passkey that does not confirm the person signs nothing", async () => {
  const id = await batch("br-2026-0413");
  await ask(id);
  const page = await withPasskey(tokens.santos, "Santos' laptop");
  await page.getByRole("link", { name: /release of br-2026-0413/ }).click();
  await page.getByRole("heading", { name: "release of br-2026-0413" }).waitFor();
  await page.keys.verifyUser(false);
  await page.getByRole("button", { name: "Approve" }).click();
  await page.getByRole("alert").getByText("Nothing was recorded").waitFor();
  await accessible(page, "a refused passkey");
  assert.deepEqual(await decided(id), []);
  // The decision is still hers, and works when the passkey confirms her.
  await page.keys.verifyUser(true);
  await page.getByRole("button", { name: "Approve" }).click();
  await page.getByText("You signed:").waitFor();
  assert.equal((await decided(id))[0].assurance, "passkey_signed");
});

test("a rejection and a withdrawal need a reason, and are signed with their own meaning", async () => {
  const page = await openPage(browser);
  page.keys = await authenticator(page);
  await signIn(page, server, tokens.chen);
  await addPasskey(page, "Chen's key");
  const id = await batch("br-2026-0414");
  await ask(id);
  const { gates } = await caller(server)("GET", `/v1/processes/${id}`);
  await page.goto(`${server.origin}/gate/${gates[0].step_id}`);
  await page.getByText("withdrawal of the request for release of br-2026-0414 as operator_chen").waitFor();
  await page.getByRole("button", { name: "Withdraw" }).click();
  await page.getByRole("alert").getByText("Write a reason first.").waitFor();
  await page.getByLabel("Reason").fill("wrong batch");
  await page.getByRole("button", { name: "Withdraw" }).click();
  const signed = page.getByRole("status").filter({ hasText: "You signed:" });
  await signed.getByText("withdrawal of the request for release of br-2026-0414").waitFor();
  const after = await caller(server)("GET", `/v1/processes/${id}`);
  assert.deepEqual(new Set(after.gates.map((gate) => gate.state)), new Set(["Withdrawn"]));

  const rejected = await batch("br-2026-0417");
  await ask(rejected);
  const santos = await withPasskey(tokens.santos, "Santos' laptop");
  await santos.getByRole("link", { name: /release of br-2026-0417/ }).click();
  await santos.getByRole("heading", { name: "release of br-2026-0417" }).waitFor();
  await santos.getByLabel("Reason").fill("temperature excursion");
  await santos.getByRole("button", { name: "Reject" }).click();
  const said = santos.getByRole("status").filter({ hasText: "You signed:" });
  await said.getByText("rejection of release of br-2026-0417 as qp_director_santos").waitFor();
  const [record] = await decided(rejected);
  assert.deepEqual([record.assurance, record.payload.decision], ["passkey_signed", "reject"]);
});

const LEAVE = `
kind: process
name: leave-release
states: [draft, released]
initial_state: draft
terminal_states: [released]
transitions:
  - {from: draft, action: release, to: released, guard: qp}
gate_spec:
  qp: {approver_ref: qp_director_santos, scope: "batch:on-leave", delegable: true}
`;

test("a substitute sees in whose place they decide, before and after signing", async (t) => {
  await publish(server, LEAVE);
  const token = await person(server, "dr_vega", ["workflows:read"], "Ana Vega");
  const santos = await withPasskey(tokens.santos, "Santos' laptop");
  await santos.goto(`${server.origin}/admin`);
  await santos.getByLabel("Substitute", { exact: true }).fill("dr_vega");
  await santos.getByLabel("Scope of the gates").fill("batch:on-leave");
  await santos.getByLabel("Until").fill("2099-01-01T00:00");
  await santos.getByRole("button", { name: "Name a substitute" }).click();
  await santos.getByRole("listitem").filter({ hasText: "Ana Vega" }).getByText("in force").waitFor();
  await accessible(santos, "substitutes");

  const start = { definition: "leave-release", subject_ref: "br-2026-0600" };
  const { instance_id } = await caller(server, tokens.chen)("POST", "/v1/processes", start);
  await ask(instance_id);
  const vega = await withPasskey(token, "Vega's laptop");
  const item = vega.getByRole("link", { name: /release of br-2026-0600/ });
  await item.getByText("as substitute of Maria Santos").waitFor();
  const decision = vega.getByRole("region", { name: "Decision" });
  await decision.getByText("as substitute of Maria Santos").waitFor();
  const meaning = "approval of release of br-2026-0600 as dr_vega, as substitute of qp_director_santos";
  await decision.getByText(meaning).waitFor();
  await vega.getByRole("button", { name: "Approve" }).click();
  await vega.getByRole("status").filter({ hasText: "You signed:" }).getByText(meaning).waitFor();
  const { gates } = await caller(server, tokens.chen)("GET", `/v1/processes/${instance_id}`);
  assert.deepEqual([gates[0].decided_by, gates[0].on_behalf_of], ["dr_vega", "qp_director_santos"]);

  // Whoever looks at the gate later reads both names.
  const meyer = await withPasskey(tokens.meyer, "Meyer's phone");
  await meyer.goto(`${server.origin}/gate/${gates[0].step_id}`);
  await meyer.getByText("Ana Vega as substitute of Maria Santos").first().waitFor();
  await meyer.getByText(meaning).waitFor();
  await meyer.goto(`${server.origin}/processes/${instance_id}`);

  await santos.getByRole("button", { name: "End the substitution by dr_vega" }).click();
  await santos.getByRole("listitem").filter({ hasText: "Ana Vega" }).getByText("revoked").waitFor();
  await proved(t, instance_id);
  for (const page of [santos, vega, meyer]) assert.deepEqual(page.complaints, []);
});

test("a second passkey is signed for with the first one, and removed with itself", async (t) => {
  const token = await person(server, "two_keys", []);
  const page = await openPage(browser);
  const laptop = await authenticator(page);
  await signIn(page, server, token);
  await addPasskey(page, "laptop");
  // A security key is plugged in. The person touches it first, and then the laptop, which signs.
  const key = await authenticator(page, "usb");
  await laptop.touch(false);
  await page.route("**/v1/session/options", async (route) => {
    await key.touch(false);
    await laptop.touch(true);
    await route.continue();
  });
  await addPasskey(page, "security key");
  await page.unroute("**/v1/session/options");
  await key.touch(true);
  await laptop.touch(false);
  await page.getByRole("button", { name: "Remove the passkey “security key”" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Remove", exact: true }).click();
  await page.getByRole("dialog").waitFor({ state: "hidden" });
  await page.getByRole("listitem").filter({ hasText: "security key" }).waitFor({ state: "detached" });
  const { items } = await caller(server)("GET", "/v1/ledger/records?actor_ref=two_keys");
  assert.deepEqual(
    items.map((record) => [record.action_ref, record.assurance]),
    [
      ["key_registered", "server_attested"],
      ["key_registered", "passkey_signed"],
      ["key_revoked", "passkey_signed"],
    ],
  );
  // Every bundle holds the records of all keys.
  await proved(t, await batch("br-2026-0416"));
});

test("a passkey is not added where the first one is not at hand", async () => {
  await withPasskey(tokens.meyer, "Meyer's phone");
  const page = await openPage(browser);
  await authenticator(page);
  await signIn(page, server, tokens.meyer);
  await page.goto(`${server.origin}/admin`);
  await page.getByRole("listitem").filter({ hasText: "Meyer's phone" }).waitFor();
  await page.getByLabel("Name of the new passkey").fill("Meyer's desk");
  await page.getByRole("button", { name: "Add a passkey" }).click();
  // This browser does not have the first one, so it cannot sign: nothing is added.
  await page.getByRole("alert").getByText("Nothing was recorded").waitFor();
  const me = await caller(server, tokens.meyer)("GET", "/v1/me");
  assert.equal(me.passkeys.length, 1);
});
