// The operator's side: what is wrong now, one problem after another, and what became of it.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, test } from "node:test";
import { accessibleInThemes, caller, openPage, person, publish, setUp, signIn } from "./support.mjs";

const CATEGORIES = [
  "Dead letters",
  "Silent workers",
  "Overdue steps",
  "Schema violations",
  "Event lag",
  "Integrity warnings",
  "Failed runs",
  "Orphan runs",
];
const BRITTLE = `kind: workflow
name: brittle
steps:
  - {name: charge, run: worker, queue: q, idempotent: true, retryPolicy: {maxRetries: 0}}
`;
const HELD = BRITTLE.replace("brittle", "held").replace("queue: q,", "queue: h, onFailure: hold,");
const LONG =
  "the payment provider refused: the card of the customer is not valid any more, ask for another one";

const CHARGED = BRITTLE.replace("brittle", "charged").replace("queue: q,", "queue: c,");

/** A receiver of deliveries that wants none of them, until it is told otherwise. */
let answer = 410;
const receiver = createServer((_, response) => response.writeHead(answer).end()).listen(0, "127.0.0.1");
await new Promise((done) => receiver.once("listening", done));
after(() => receiver.close());
const WEBHOOK = `[[webhooks]]
name = "books"
url = "http://127.0.0.1:${receiver.address().port}/in"
secret = "s3cr3t-of-the-webhook"
types = ["order.*"]
[executors.http]
allow_private = true
[governance]
replay_approver = "ann"
`;

let server;
let browser;
let operator;
let ann;
let admin;

setUp(
  async (made) => {
    ({ server, browser } = made);
    admin = caller(server);
    for (const yaml of [BRITTLE, HELD, CHARGED]) await publish(server, yaml);
    ann = await person(server, "ann", [], "Ann Reed");
    const scopes = ["governance:read", "governance:act", "runs:read", "audit:read"];
    operator = await person(server, "olga", scopes, "Olga Petrova");
  },
  { config: WEBHOOK },
);

/** A run whose only step is given up. Gives its id. */
async function dies(definition, queue, subject, error = LONG, start = {}) {
  const { run_id } = await admin("POST", "/v1/runs", { definition, subject_ref: subject, ...start });
  const task = await claim(queue);
  await admin("POST", `/v1/tasks/${task.task_id}/dead`, { lease_token: task.lease_token, last_error: error });
  return run_id;
}

async function claim(queue) {
  const asked = { worker_id: "w", wait_ms: 10_000 };
  const { tasks } = await admin("POST", `/v1/queues/${queue}/claim`, asked);
  assert.equal(tasks.length, 1);
  return tasks[0];
}

/** Until the board says so: a problem appears a moment after its cause, for a delivery up to ten seconds. */
async function counted(category, count) {
  for (let tries = 0; tries < 300; tries++) {
    const { items } = await admin("GET", "/v1/governance/problems");
    if (items.find((row) => row.category === category).count === count) return;
    await new Promise((done) => setTimeout(done, 100));
  }
  assert.fail(`${category} does not become ${count}`);
}

async function open(token, options) {
  const page = await openPage(browser, options);
  await signIn(page, server, token);
  return page;
}

const rows = (page) => page.getByRole("list", { name: "Categories of problems" }).getByRole("listitem");
const row = (page, name) => rows(page).filter({ hasText: name });

test("the board shows all eight categories; a failed run becomes a problem, and its timeline says why", async () => {
  const page = await open(operator);
  await page.goto(server.origin);
  await page.getByRole("heading", { name: "Governance" }).waitFor();
  await page.goto(`${server.origin}/inbox`);
  await page.getByText("Nothing waits for your decision").waitFor();
  await page.keyboard.press("g");
  await page.keyboard.press("v");
  await page.waitForURL("**/governance");
  await row(page, "Failed runs").getByText("Nothing has been recorded so far").waitFor();
  assert.equal(await rows(page).count(), 8);
  for (const [at, name] of CATEGORIES.entries())
    assert.match(await rows(page).nth(at).innerText(), new RegExp(`On track\\s+0\\s+${name}`));
  const entry = page.getByRole("navigation").getByRole("link", { name: /Governance/ });
  assert.equal(await entry.getByText("Something needs attention").count(), 0);

  await dies("brittle", "q", "order 17");
  await counted("failed_runs", 1);
  await page.reload();
  const failed = row(page, "Failed runs");
  await failed.getByText("1 failed run").waitFor();
  assert.match(await failed.innerText(), /Needs attention\s+1\s+Failed runs/);
  await entry.getByText("Something needs attention").waitFor();
  assert.match(await row(page, "Orphan runs").innerText(), /On track/);

  await failed.getByRole("link", { name: "Failed runs" }).click();
  await page.getByRole("heading", { name: "Failed runs" }).waitFor();
  const item = page.getByRole("row", { name: /order 17/ });
  await item.getByText(LONG).waitFor();
  await item.getByRole("link").click();
  const problem = page.getByRole("complementary", { name: "Problem" });
  await problem.getByText("The run failed").or(problem.getByText("the run failed")).waitFor();
  await problem.getByRole("link", { name: "order 17" }).waitFor();
  await page.reload();
  await problem.getByRole("link", { name: "Timeline" }).click();
  await page.getByRole("heading", { name: "Timeline" }).waitFor();
  await page.getByText(LONG).waitFor();
  await page.getByText("run started").waitFor();
  assert.deepEqual(page.complaints, []);
});

test("the evidence of a sentence is one click away", async () => {
  const page = await open(operator);
  await page.goto(`${server.origin}/governance`);
  await row(page, "Failed runs").getByRole("link", { name: "1 event" }).click();
  await page.getByText("problem opened").first().waitFor();
  await page.goto(`${server.origin}/governance/problems/failed_runs`);
  await page.getByText("Where this sentence comes from").click();
  await page.getByText("deterministic rule, countersign.problem_board 1").waitFor();
  assert.deepEqual(page.complaints, []);
});

test("a problem is resolved by the event that puts it right, and the light turns green", async () => {
  const { items } = await admin("GET", "/v1/governance/problems/failed_runs?state=open");
  const corrected = { definition: "brittle", subject_ref: "order 17 again", corrects: items[0].run_id };
  await admin("POST", "/v1/runs", corrected);
  const { task_id, lease_token } = await claim("q");
  await admin("POST", `/v1/tasks/${task_id}/complete`, { lease_token });
  await counted("failed_runs", 0);
  const page = await open(operator);
  await page.goto(`${server.origin}/governance`);
  await row(page, "Failed runs").getByText("No failed runs; the last were resolved").waitFor();
  await row(page, "Failed runs").getByText("On track").waitFor();
  await row(page, "Failed runs").getByRole("link", { name: "Failed runs" }).click();
  await page.getByText("No problem is open").waitFor();
  await page.getByLabel("Show").selectOption("resolved");
  await page
    .getByRole("row", { name: /order 17/ })
    .getByRole("link")
    .click();
  const problem = page.getByRole("complementary", { name: "Problem" });
  const resolved = problem.getByRole("link", { name: "Record" }).last();
  await resolved.click();
  await page
    .getByRole("complementary", { name: "Record" })
    .getByText("Step completed")
    .or(page.getByRole("complementary", { name: "Record" }).getByText("step completed"))
    .waitFor();
  assert.deepEqual(page.complaints, []);
});

test("a delivery that is given up turns the light red, and its arrival turns it green", async () => {
  const page = await open(operator);
  await page.goto(`${server.origin}/governance`);
  const letters = row(page, "Dead letters");
  await letters.getByText("On track").waitFor();
  await admin("POST", "/v1/runs", { definition: "charged", subject_ref: "order 21" });
  const { task_id, lease_token } = await claim("c");
  const outbound_events = [{ type: "order.paid", data: { amount: 4300 } }];
  await admin("POST", `/v1/tasks/${task_id}/complete`, { lease_token, outbound_events });
  await counted("dlq", 1);
  await page.reload();
  await letters.getByText("1 dead letter").waitFor();
  await letters.getByText("Needs attention").waitFor();
  await letters.getByRole("link", { name: "Dead letters" }).click();
  await page
    .getByRole("row", { name: /order 21.*delivery/ })
    .getByRole("link")
    .click();
  await page.getByRole("heading", { name: "charge" }).waitFor();
  await page.getByText("answered 410").waitFor();
  await page.getByText("4,300").waitFor();
  await page.getByText("books", { exact: true }).waitFor();

  answer = 200;
  await page.getByText("Nobody has asked for a replay yet").waitFor();
  await page.getByRole("button", { name: "Ask for a replay" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("textbox").fill("their certificate is renewed");
  await dialog.getByRole("button", { name: "Ask for a replay" }).click();
  await page.getByRole("link", { name: "Waits for its approval" }).waitFor();
  await page.getByText("asked for by Olga Petrova").waitFor();

  const approver = await open(ann);
  await approver.getByText("their certificate is renewed").first().waitFor();
  const { items } = await caller(server, ann)("GET", "/v1/inbox");
  const request = `/v1/processes/${items[0].instance_id}/gates/approve/decision`;
  await caller(server, ann)("POST", request, { decision: "approve", reason: "seen" });
  await counted("dlq", 0);
  await page.reload();
  await page.getByRole("link", { name: "Delivered" }).waitFor();
  await page.goto(`${server.origin}/governance`);
  await letters.getByText("On track").waitFor();
  assert.deepEqual(page.complaints, []);
});

test("a dead letter shows what it holds and every attempt", async () => {
  await dies("held", "h", "order 18", LONG, { input: { amount: 1200, currency: "VND" } });
  await counted("dlq", 1);
  const page = await open(operator);
  await page.goto(`${server.origin}/governance`);
  await row(page, "Dead letters").getByRole("link", { name: "Dead letters" }).click();
  await page.waitForURL("**/governance/dead-letters");
  await page
    .getByRole("row", { name: /order 18/ })
    .getByRole("link")
    .click();
  await page.getByRole("heading", { name: "charge" }).waitFor();
  await page.getByText("the step is dead, and its run is held").waitFor();
  await page.getByText("1,200").waitFor();
  await page.getByRole("listitem").filter({ hasText: "attempt 1" }).getByText(LONG).waitFor();
  await page.getByRole("link", { name: "order 18" }).click();
  await page.waitForURL(/\/runs\/.*step=charge/);
  assert.deepEqual(page.complaints, []);
});

test("the board follows what happens, without a reload", async () => {
  const page = await open(operator);
  await page.goto(`${server.origin}/governance`);
  await row(page, "Failed runs").getByText("On track").waitFor();
  await page.getByText("Live", { exact: true }).waitFor();
  await dies("brittle", "q", "order 19");
  await counted("failed_runs", 1);
  await row(page, "Failed runs").getByText("Needs attention").waitFor();
});

test("without the scope there is no entry, and the page says what is missing", async () => {
  const token = await person(server, "nina", ["runs:read"], "Nina Lang");
  const page = await open(token);
  await page.goto(server.origin);
  await page.waitForURL("**/inbox");
  await page.getByRole("navigation").getByRole("link", { name: "Runs" }).waitFor();
  assert.equal(await page.getByRole("navigation").getByRole("link", { name: "Governance" }).count(), 0);
  await page.goto(`${server.origin}/governance`);
  await page.getByText("Governance is open to operators").waitFor();
  assert.deepEqual(page.complaints, []);
});

test("axe finds nothing in any theme, and no page is wider than a phone", async () => {
  await dies("brittle", "q", "order-with-a-very-long-name-that-does-not-end-where-one-would-expect-it");
  await counted("failed_runs", 2);
  const { items: failed } = await admin("GET", "/v1/governance/problems/failed_runs?state=open&order=desc");
  const { items: letters } = await admin("GET", "/v1/dead-letters");
  const pages = [
    ["/governance", "2 failed runs"],
    ["/governance/problems/failed_runs", "does-not-end"],
    [`/governance/problems/failed_runs?item=${failed[0].problem_id}`, "Opened by"],
    ["/governance/problems/orphan_runs", "No problem is open"],
    ["/governance/dead-letters", "order 18"],
    [`/governance/dead-letters/${letters[0].dead_letter_id}`, "Failed attempts"],
    [`/governance/timeline?run_id=${failed[0].run_id}`, "run started"],
  ];
  const page = await open(operator, { reducedMotion: "reduce" });
  for (const [path, text] of pages) {
    await page.goto(`${server.origin}${path}`);
    await page.locator("main").getByText(text).first().waitFor();
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
