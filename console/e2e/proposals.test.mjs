// A change of a definition that needs an approval: from the editor's draft to the merged version, and a conflict on the way.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
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

const document = (name, steps) => `kind: workflow
name: ${name}
gate_spec:
  publish: {approvers: [ben, cleo], quorum: {rule: m-of-n, m: 2}, scope: "refunds:publish"}
steps:
  - {name: check, run: worker, queue: desk, idempotent: true}
${steps.map((step) => `  - {name: ${step}, run: worker, queue: bank, idempotent: true, dependsOn: [check]}\n`).join("")}timeout: 30d
`;
const NAMES = ["refunds", "payouts", "limits", "a-definition-with-a-long-name-that-ends-later-than-expected"];

let server;
let browser;
let admin;
/** The proposer, and the two who approve. */
let ada;
let ben;
let cleo;

setUp(
  async (made) => {
    ({ server, browser } = made);
    admin = caller(server);
    const scopes = ["definitions:publish", "proposals:write", "runs:read", "workflows:read"];
    ada = await person(server, "ada", scopes, "Ada Berg");
    ben = await person(server, "ben", [], "Ben Okafor");
    cleo = await person(server, "cleo", [], "Cleo Marin");
    for (const name of NAMES) await publish(server, document(name, ["pay"]));
  },
  { config: '[governance.proposals]\napprovers = ["ben"]\n' },
);

async function open(token, options) {
  const page = await openPage(browser, options);
  await signIn(page, server, token);
  return page;
}

const propose = async (target, base_version, steps, reason = "customers wait too long") => {
  const body = { proposal_kind: "workflow", target, base_version, affected: [], reason };
  return (await caller(server, ada)("POST", "/v1/proposals", { ...body, document: document(target, steps) }))
    .proposal_id;
};

/** Submitted, in review, and approved by both. */
async function approved(id) {
  for (const verb of ["submit", "review"])
    await caller(server, ada)("POST", `/v1/proposals/${id}/${verb}`, {});
  for (const token of [ben, cleo])
    await caller(server, token)("POST", `/v1/processes/${id}/gates/approve/decision`, {
      decision: "approve",
    });
}

/** Presses the verb, and confirms it in the dialog. */
async function act(page, verb, reason) {
  await page.getByRole("button", { name: verb, exact: true }).click();
  const dialog = page.getByRole("dialog", { name: verb });
  if (reason) await dialog.getByLabel("Reason (optional)").fill(reason);
  await dialog.getByRole("button", { name: "Record", exact: true }).click();
  return dialog;
}

const state = (page, words) => page.locator("main header").getByText(words, { exact: true }).waitFor();

test("where publishing is refused, the edit becomes a draft; two approve it, and it is merged", async () => {
  const page = await open(ada);
  await page.goto(`${server.origin}/definitions/refunds`);
  await page.getByRole("link", { name: "Edit as a new version" }).click();
  await page.waitForFunction(() => window.document.getElementById("yaml")?.value.includes("name: refunds"));
  await page.getByLabel("Source").fill(document("refunds", ["pay", "tell"]));
  await page.getByText("No problems found.").waitFor();
  await page.getByRole("button", { name: "Publish" }).click();
  await page.getByText("The next version of this definition needs an approval.").waitFor();
  await page.getByRole("button", { name: "Propose it instead" }).click();
  assert.equal(await page.getByRole("switch", { name: "Proposal mode" }).isChecked(), true);
  const save = page.getByRole("button", { name: "Save as a draft" });
  assert.equal(await save.isDisabled(), true, "it needs a reason");
  await page.getByLabel("Reason").fill("customers wait for an answer");
  await page.getByLabel("Also affected").fill("ticket-7, payouts");
  await save.click();
  await page.waitForURL(/\/proposals\/[0-9a-f-]+$/);
  const id = page.url().split("/").at(-1);

  await state(page, "Draft");
  await page.getByText("“customers wait for an answer”").waitFor();
  await page.getByText("ticket-7, payouts").waitFor();
  await page.getByText("Ben Okafor, Cleo Marin").waitFor();
  await page.getByRole("button", { name: /^tell.*Added/ }).waitFor();
  await page.getByText("New edges").waitFor();
  await page.getByText("check → tell").waitFor();

  await act(page, "Submit", "please look");
  await state(page, "Submitted");
  await act(page, "Begin the review");
  await state(page, "In review");
  await page.getByText("0 of 2 approved; 2 needed").waitFor();
  const refused = await act(page, "Merge");
  await refused.getByRole("link", { name: /gate-not-cleared/ }).waitFor();
  await refused.getByRole("button", { name: "Cancel" }).click();
  await page.getByLabel("Your comment").fill("The letter is checked by the lawyers.");
  await page.getByRole("button", { name: "Comment", exact: true }).click();
  await page.getByRole("list", { name: "Comments" }).getByText("checked by the lawyers").waitFor();

  for (const [token, first] of [
    [ben, true],
    [cleo, false],
  ]) {
    const approver = await open(token);
    if (first) {
      // From the in-tray to the proposal and back.
      await approver.getByRole("link", { name: "Open the proposal" }).click();
      await approver.getByRole("button", { name: /^tell.*Added/ }).waitFor();
    } else await approver.goto(`${server.origin}/proposals/${id}`);
    await approver.getByRole("link", { name: "Decide in your in-tray" }).click();
    await approver.getByText("You sign:").first().waitFor();
    await approver.getByRole("button", { name: "Approve" }).click();
    await approver.getByText("You signed:").waitFor();
    assert.deepEqual(approver.complaints, []);
    await approver.context().close();
  }

  // The stream says that it moved.
  await state(page, "Approved");
  await page.getByText("2 of 2 approved; 2 needed").waitFor();
  await act(page, "Merge");
  await state(page, "Merged");
  assert.equal(await page.getByRole("button", { name: "Withdraw" }).count(), 0, "it has ended");
  await page.getByRole("link", { name: "Published as refunds@2" }).click();
  await page.getByRole("button", { name: /^tell/ }).waitFor();
  assert.equal(
    (await admin("GET", "/v1/definitions/refunds")).document,
    document("refunds", ["pay", "tell"]),
  );
  assert.deepEqual(page.complaints, []);
});

test("a version that comes between is a conflict; the page says what changed, and the proposal is rebased", async () => {
  const [late, early] = [
    await propose("payouts", 1, ["pay", "late"]),
    await propose("payouts", 1, ["pay", "early"]),
  ];
  await approved(late);
  await approved(early);
  const page = await open(ada);
  await page.goto(`${server.origin}/proposals/${late}`);
  await state(page, "Approved");
  await caller(server, ada)("POST", `/v1/proposals/${early}/merge`, {});

  const refused = await act(page, "Merge");
  await refused.getByRole("link", { name: "conflict" }).waitFor();
  await refused.getByRole("link", { name: "Rebase on version 2" }).waitFor();
  await refused.getByRole("button", { name: "Cancel" }).click();
  const conflict = page.getByRole("region", { name: "Conflict" });
  await conflict.getByText("The newest version is 2. This proposal changes version 1.").waitFor();
  await conflict.getByText("check → early").waitFor();
  // Against the newest version, the proposal would remove what came between.
  await page.getByLabel("Compare with version").selectOption("newest");
  await page.getByRole("button", { name: /^early.*Removed/ }).waitFor();

  await conflict.getByRole("link", { name: "Rebase on version 2" }).click();
  await page.getByText("from version 1 to version 2").waitFor();
  await page.getByText("check → early").waitFor();
  await page.getByLabel("Source").fill(document("payouts", ["pay", "early", "late"]));
  await page.getByRole("button", { name: "Save as a draft" }).click();
  await state(page, "Draft");
  await page.getByText("Version 2", { exact: true }).waitFor();
  assert.equal(await conflict.count(), 0);
  assert.equal(await page.getByRole("button", { name: /^early.*Removed/ }).count(), 0);
  await page.getByText("Earlier approvals").waitFor();

  await approved(late);
  await state(page, "Approved");
  await act(page, "Merge");
  await page.getByRole("link", { name: "Published as payouts@3" }).waitFor();
  assert.deepEqual(page.complaints, []);
});

test("a refusal is shown in the server's words, and a withdrawn proposal takes nothing more", async () => {
  const id = await propose("limits", 1, ["pay", "count"]);
  const other = await person(server, "otto", ["proposals:write"], "Otto Brandt");
  const stranger = await open(other);
  await stranger.goto(`${server.origin}/proposals/${id}`);
  const refused = await act(stranger, "Submit");
  await refused.getByRole("alert").waitFor();
  await refused.getByRole("link", { name: "unauthorized" }).waitFor();
  assert.deepEqual(stranger.complaints, []);

  const page = await open(ada);
  await page.goto(`${server.origin}/definitions`);
  await page.getByRole("link", { name: "Proposals" }).click();
  await page.getByLabel("Target").fill("limits");
  await page.getByRole("link", { name: "limits" }).click();
  await act(page, "Withdraw", "a mistake");
  await state(page, "Withdrawn");
  assert.equal(await page.getByRole("button", { name: "Submit" }).count(), 0);
  await page.goto(`${server.origin}/proposals?state=withdrawn`);
  await page.getByRole("row", { name: /limits.*Withdrawn.*Ada Berg/ }).waitFor();
  assert.deepEqual(page.complaints, []);
});

test("a change of another kind is applied elsewhere: the merge names the evidence", async () => {
  const made = await caller(server, ada)("POST", "/v1/proposals", {
    proposal_kind: "iu_split",
    target: "iu-12",
    base_version: 4,
    affected: ["iu-13"],
    proposed_action: { into: ["iu-13", "iu-14"] },
    reason: "two topics",
  });
  const id = made.proposal_id;
  const mine = caller(server, ada);
  for (const verb of ["submit", "review"]) await mine("POST", `/v1/proposals/${id}/${verb}`, {});
  await caller(server, ben)("POST", `/v1/processes/${id}/gates/approve/decision`, { decision: "approve" });
  const page = await open(ada);
  await page.goto(`${server.origin}/proposals/${id}`);
  await page.getByText("iu-13, iu-14").waitFor();
  await page.getByRole("button", { name: "Merge", exact: true }).click();
  const dialog = page.getByRole("dialog", { name: "Merge" });
  await dialog.getByLabel(/^Evidence/).fill("job-77");
  await dialog.getByRole("button", { name: "Record", exact: true }).click();
  await page.getByText("Applied: job-77").waitFor();
  assert.deepEqual(page.complaints, []);
});

test("where the server asks for signatures, every act on a proposal is signed with the passkey", async () => {
  const file = join(server.data, "..", "countersign.toml");
  const page = await open(ada);
  await authenticator(page);
  await page.goto(`${server.origin}/admin`);
  await page.getByLabel("Name of the new passkey").fill("Ada's laptop");
  await page.getByRole("button", { name: "Add a passkey" }).click();
  await page.getByRole("listitem").filter({ hasText: "Ada's laptop" }).waitFor();
  const before = readFileSync(file, "utf8");
  writeFileSync(file, `regulated = true\n${before}`);
  await server.stop();
  await server.restart();

  await page.goto(`${server.origin}/definitions/new?from=limits&propose=true`);
  await page.waitForFunction(() => window.document.getElementById("yaml")?.value.includes("name: limits"));
  await page.getByLabel("Source").fill(document("limits", ["pay", "sign"]));
  await page.getByLabel("Reason").fill("signed");
  await page.getByRole("button", { name: "Save as a draft" }).click();
  await page.waitForURL(/\/proposals\/[0-9a-f-]+$/);
  const id = page.url().split("/").at(-1);
  await page.getByRole("link", { name: "Edit", exact: true }).click();
  await page.getByLabel("Reason").fill("signed again");
  await page.getByRole("button", { name: "Save as a draft" }).click();
  await page.getByText("“signed again”").waitFor();
  await act(page, "Submit");
  await state(page, "Submitted");
  await page.getByLabel("Your comment").fill("look");
  await page.getByRole("button", { name: "Comment", exact: true }).click();
  await page.getByRole("list", { name: "Comments" }).getByText("look").waitFor();
  await act(page, "Begin the review");
  await state(page, "In review");
  const { items } = await admin("GET", `/v1/ledger/records?instance_id=${id}`);
  assert.ok(items.length >= 6);
  assert.deepEqual(
    items.filter((record) => record.assurance !== "passkey_signed"),
    [],
  );
  assert.deepEqual(page.complaints, []);
  writeFileSync(file, before);
  await server.stop();
  await server.restart();
});

test("axe finds nothing in any theme, and no page is wider than a phone", async () => {
  const target = NAMES.at(-1);
  const id = await propose(target, 1, [
    "pay",
    "a-step-with-a-name-that-is-longer-than-its-card-has-room-for",
  ]);
  const early = await propose(target, 1, ["pay", "early"]);
  await approved(early);
  await caller(server, ada)("POST", `/v1/proposals/${early}/merge`, {});
  await approved(id);
  const pages = [
    ["/proposals", target],
    [`/proposals/${id}`, "Rebase on version 2"],
    [`/proposals/${id}/edit?base=2`, "check → early"],
    [`/definitions/new?from=refunds&propose=true`, "becomes a draft proposal"],
    ["/proposals?target=nothing", "No proposals match"],
  ];
  const page = await open(ada, { reducedMotion: "reduce" });
  for (const [path, text] of pages) {
    await page.goto(`${server.origin}${path}`);
    await page.locator("main").getByText(text).first().waitFor();
    if (path === `/proposals/${id}`) await page.locator(".react-flow__node").first().waitFor();
    await accessibleInThemes(page, path);
  }
  await page.setViewportSize({ width: 360, height: 740 });
  for (const [path, text] of pages) {
    await page.goto(`${server.origin}${path}`);
    await page.locator("main").getByText(text).first().waitFor();
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= 360, `${path} is ${width} px wide`);
  }
  assert.deepEqual(page.complaints, []);
});
