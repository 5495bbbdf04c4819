// The approver's side: in-tray, gate, decision, and what a wrong person sees.
import assert from "node:assert/strict";
import { test } from "node:test";
import { accessible, caller, openPage, person, publish, setUp, signIn } from "./support.mjs";

const RELEASE = `
kind: process
name: batch-release
states: [draft, released]
initial_state: draft
terminal_states: [released]
transitions:
  - {from: draft, action: release, to: released, guard: qp}
gate_spec:
  qp: {approver_ref: santos, scope: batch:release}
`;

/** Two of three. */
const RECALL = `
kind: process
name: recall
states: [open, recalled]
initial_state: open
terminal_states: [recalled]
transitions:
  - {from: open, action: recall, to: recalled, guard: board}
gate_spec:
  board: {approvers: [santos, meyer, tran], quorum: {rule: m-of-n, m: 2}, scope: batch:recall}
`;

let server;
let browser;
let tokens;

setUp(async (made) => {
  ({ server, browser } = made);
  tokens = {
    santos: await person(server, "santos", [], "Maria Santos"),
    meyer: await person(server, "meyer", ["workflows:read"], "Jonas Meyer"),
    tran: await person(server, "tran", ["workflows:read"], "Tran Thi Mai"),
    mallory: await person(server, "mallory", ["workflows:read"]),
    operator: await person(server, "operator", [
      "workflows:start",
      "workflows:open-gate",
      "workflows:fire",
      "workflows:read",
    ]),
  };
  await publish(server, RELEASE);
  await publish(server, RECALL);
});

async function asked(subject, definition = "batch-release", action = "release") {
  const operator = caller(server, tokens.operator);
  const start = { definition, subject_ref: subject };
  const { instance_id } = await operator("POST", "/v1/processes", start);
  await operator("POST", `/v1/processes/${instance_id}/gates`, { action });
  return instance_id;
}

test("an approver sees what waits, approves with a reason, and the process can go on", async () => {
  const id = await asked("br-2026-0412");
  const page = await openPage(browser);
  await signIn(page, server, tokens.santos);
  await page.getByRole("heading", { name: "release of br-2026-0412" }).waitFor();
  await accessible(page, "the in-tray");
  await page.getByLabel("Reason").fill("batch record reviewed");
  await page.getByRole("button", { name: "Approve" }).click();
  await page.getByText("Approved", { exact: true }).waitFor();
  const process = await caller(server)("GET", `/v1/processes/${id}`);
  assert.equal(process.gates[0].state, "Approved");
  assert.equal(process.gates[0].decided_by, "santos");
  assert.equal(process.gates[0].decision_reason, "batch record reviewed");
  assert.deepEqual(page.complaints, []);
});

test("the keys a and r reach the decision and never take it", async () => {
  const id = await asked("br-2026-0499");
  const { gates } = await caller(server)("GET", `/v1/processes/${id}`);
  const page = await openPage(browser);
  await signIn(page, server, tokens.santos);
  await page.goto(`${server.origin}/gate/${gates[0].step_id}`);
  const button = (name) => page.getByRole("button", { name, exact: true });
  await button("Reject").waitFor();
  const focused = () => page.evaluate(() => document.activeElement?.textContent);
  await page.keyboard.press("r");
  assert.equal(await focused(), "Reject");
  await page.keyboard.press("a");
  assert.equal(await focused(), "Approve");
  // In the field they are letters.
  await page.getByLabel("Reason").focus();
  await page.keyboard.type("a raft of reasons");
  assert.equal(await page.getByLabel("Reason").inputValue(), "a raft of reasons");
  assert.equal((await caller(server)("GET", `/v1/processes/${id}`)).gates[0].state, "Pending");
  await page.getByRole("heading", { name: "release of br-2026-0499" }).click();
  await page.keyboard.press("a");
  await page.keyboard.press("Enter");
  await page.getByText("You signed:").waitFor();
  // Who may not read the ledger learns the number of the record, too.
  await page.getByText(/No\. \d+ of this process/).waitFor();
  assert.equal((await caller(server)("GET", `/v1/processes/${id}`)).gates[0].state, "Approved");
  assert.deepEqual(page.complaints, []);
});

test("every page says in the title of its tab how much waits", async () => {
  const operator = caller(server, tokens.operator);
  const page = await openPage(browser);
  const token = await person(server, "tran_2", ["workflows:read"]);
  await publish(
    server,
    RELEASE.replace("name: batch-release", "name: side-release").replace("santos", "tran_2"),
  );
  await signIn(page, server, token);
  await page.goto(`${server.origin}/processes`);
  await page.getByRole("heading", { name: "Processes" }).waitFor();
  assert.equal(await page.title(), "Countersign");
  const start = { definition: "side-release", subject_ref: "br-2026-0500" };
  const { instance_id } = await operator("POST", "/v1/processes", start);
  // The list is live, too: nothing was reloaded.
  await page.getByRole("link", { name: "br-2026-0500" }).waitFor();
  await operator("POST", `/v1/processes/${instance_id}/gates`, { action: "release" });
  await page.waitForFunction(() => document.title === "(1) Countersign");
  await page.getByRole("link", { name: "Ledger" }).click();
  await page.getByRole("heading", { name: "Ledger" }).waitFor();
  assert.equal(await page.title(), "(1) Countersign");
  assert.deepEqual(page.complaints, []);
});

const LOOP = `
kind: process
name: loop
states: [here, there, done]
initial_state: here
terminal_states: [done]
transitions:
  - {from: here, action: go, to: there}
  - {from: there, action: back, to: here}
  - {from: here, action: finish, to: done, guard: qp}
gate_spec:
  qp: {approver_ref: meyer, scope: loop:finish}
`;

test("a history of more moves than the server gives at once is whole", async () => {
  await publish(server, LOOP);
  const operator = caller(server, tokens.operator);
  const start = { definition: "loop", subject_ref: "loop-1" };
  const { instance_id } = await operator("POST", "/v1/processes", start);
  const moves = 506;
  for (let move = 0; move < moves; move++)
    await operator("POST", `/v1/processes/${instance_id}/transitions`, {
      action: move % 2 === 0 ? "go" : "back",
      reason: `move ${move + 1}`,
    });
  await operator("POST", `/v1/processes/${instance_id}/gates`, { action: "finish" });
  const { gates } = await operator("GET", `/v1/processes/${instance_id}`);
  const page = await openPage(browser);
  await signIn(page, server, tokens.meyer);
  await page.goto(`${server.origin}/gate/${gates[0].step_id}`);
  // The beginning and every move are places of the way; the last eight are shown.
  await page.getByText(`${moves + 1 - 8} earlier`).waitFor();
  await page.goto(`${server.origin}/processes/${instance_id}`);
  await page.getByRole("button", { name: `Show more: ${moves - 100} earlier moves` }).click();
  await page.getByRole("button", { name: `Show more: ${moves - 200} earlier moves` }).waitFor();
  assert.deepEqual(page.complaints, []);
});

test("a rejection carries its reason", async () => {
  const id = await asked("br-2026-0413");
  const page = await openPage(browser);
  await signIn(page, server, tokens.santos);
  await page.getByLabel("Reason").fill("temperature excursion not explained");
  await page.getByRole("button", { name: "Reject" }).click();
  await page.getByText("Rejected", { exact: true }).first().waitFor();
  const process = await caller(server)("GET", `/v1/processes/${id}`);
  assert.equal(process.gates[0].state, "Rejected");
});

test("a wrong person sees no decide button, and the API refuses them anyway", async () => {
  const id = await asked("br-2026-0414");
  const { gates } = await caller(server)("GET", `/v1/processes/${id}`);
  const page = await openPage(browser);
  await signIn(page, server, tokens.mallory);
  await page.goto(`${server.origin}/gate/${gates[0].step_id}`);
  await page.getByText("Maria Santos decides this.").waitFor();
  assert.equal(await page.getByRole("button", { name: "Approve" }).count(), 0);
  const status = await page.evaluate(async (path) => {
    const answer = await fetch(path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ decision: "approve" }),
    });
    return answer.status;
  }, `/v1/processes/${id}/gates/release/decision`);
  assert.equal(status, 403);
});

test("an approver who may read nothing else opens the link to a gate and decides", async () => {
  const id = await asked("br-2026-0415");
  const { gates } = await caller(server)("GET", `/v1/processes/${id}`);
  const page = await openPage(browser);
  await signIn(page, server, tokens.santos);
  await page.goto(`${server.origin}/gate/${gates[0].step_id}`);
  await page.getByRole("heading", { name: "release of br-2026-0415" }).waitFor();
  await page.getByRole("heading", { name: "The way so far" }).waitFor();
  await page.getByRole("button", { name: "Approve" }).click();
  await page.getByText("You signed:").waitFor();
  assert.deepEqual(page.complaints, []);
});

test("an empty in-tray says what would appear in it", async () => {
  const page = await openPage(browser);
  await signIn(page, server, tokens.mallory);
  await page.getByText("Nothing waits for your decision").waitFor();
  await accessible(page, "the empty in-tray");
});

test("a person without audit:read learns that the ledger needs it, and can still verify a bundle", async () => {
  const page = await openPage(browser);
  await signIn(page, server, tokens.mallory);
  await page.goto(`${server.origin}/ledger`);
  await page.getByText("Reading records needs the scope audit:read.").waitFor();
  await page.getByRole("link", { name: "Verify a bundle" }).click();
  await page.getByRole("heading", { name: "Verify evidence" }).waitFor();
  assert.deepEqual(page.complaints, []);
});

test("two of three approve: all three are named, and the third is not needed", async () => {
  const id = await asked("br-2026-0390", "recall", "recall");
  const path = `/v1/processes/${id}/gates/recall/decision`;
  const gates = async () => (await caller(server)("GET", `/v1/processes/${id}`)).gates;
  const of = (all, actor) => all.find((gate) => gate.approver_ref === actor);
  // Maria Santos may read nothing but her in-tray, and knows whom else it waits for.
  const hers = await openPage(browser);
  await signIn(hers, server, tokens.santos);
  await hers.goto(`${server.origin}/gate/${of(await gates(), "santos").step_id}`);
  await hers.getByText("0 of 3 approved; 2 needed").waitFor();
  for (const name of ["Maria Santos", "Jonas Meyer", "Tran Thi Mai"])
    await hers.getByRole("listitem").filter({ hasText: name }).getByText("has not decided").waitFor();
  await hers.getByLabel("Reason").fill("needles found");
  await hers.getByRole("button", { name: "Approve" }).click();
  await hers.getByText("You signed:").waitFor();

  // The link to a colleague's step shows Jonas Meyer his own decision.
  const page = await openPage(browser);
  await signIn(page, server, tokens.meyer);
  await page.goto(`${server.origin}/gate/${of(await gates(), "santos").step_id}`);
  await page.getByText("1 of 3 approved; 2 needed").waitFor();
  const row = (name) => page.getByRole("listitem").filter({ hasText: name });
  await row("Maria Santos").getByText("“needles found”").waitFor();
  for (const name of ["Jonas Meyer", "Tran Thi Mai"]) await row(name).getByText("has not decided").waitFor();
  await accessible(page, "a quorum");
  await page.getByRole("button", { name: "Approve" }).click();
  await page.getByText("You signed:").waitFor();
  await page.getByText("2 of 3 approved; 2 needed").waitFor();
  await page.getByText("That is enough: the quorum has approved.").waitFor();

  // Nobody waits for the third one. What she says nonetheless is recorded, and does not count.
  const theirs = await openPage(browser);
  await signIn(theirs, server, tokens.tran);
  await theirs.goto(`${server.origin}/gate/${of(await gates(), "tran").step_id}`);
  const third = theirs.getByRole("listitem").filter({ hasText: "Tran Thi Mai" });
  await third.getByText("not needed any more").waitFor();
  assert.equal(await theirs.getByRole("button", { name: "Approve" }).count(), 0);
  await caller(server, tokens.tran)("POST", path, { decision: "approve" });
  await third.getByText("after the outcome; it changed nothing").waitFor();
  await theirs.getByText("2 of 3 approved; 2 needed").waitFor();
  assert.equal(of(await gates(), "tran").trailing, true);

  // Somebody who is not asked sees who is.
  const mallory = await openPage(browser);
  await signIn(mallory, server, tokens.mallory);
  const other = await asked("br-2026-0391", "recall", "recall");
  const [gate] = (await caller(server)("GET", `/v1/processes/${other}`)).gates;
  await mallory.goto(`${server.origin}/gate/${gate.step_id}`);
  await mallory.getByText("Maria Santos, Jonas Meyer, Tran Thi Mai decide this.").waitFor();
  assert.equal(await mallory.getByRole("button", { name: "Approve" }).count(), 0);
  assert.deepEqual([...page.complaints, ...theirs.complaints, ...mallory.complaints], []);
});

test("who asked sees a request that can be withdrawn, and nothing to approve", async () => {
  const id = await asked("br-2026-0416");
  const { gates } = await caller(server)("GET", `/v1/processes/${id}`);
  const page = await openPage(browser);
  await signIn(page, server, tokens.operator);
  await page.goto(`${server.origin}/gate/${gates[0].step_id}`);
  await page.getByRole("button", { name: "Withdraw" }).waitFor();
  assert.equal(await page.getByRole("button", { name: "Approve" }).count(), 0);
  await page.getByRole("button", { name: "Withdraw" }).click();
  await page.getByRole("alert").getByText("Write a reason first.").waitFor();
  assert.deepEqual(page.complaints, []);
});
