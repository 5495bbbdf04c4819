// The operator's side: lists, the graph from 2 steps to 500, the step drawer, actions.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import {
  accessible,
  caller,
  openPage,
  person,
  publish,
  signIn,
  startBrowser,
  startServer,
} from "./support.mjs";

const ORDER = `
kind: workflow
name: order
order: linear
steps:
  - {name: CHECK, run: worker, queue: orders, retryPolicy: {maxRetries: 0}, onFailure: hold, idempotent: true}
  - {name: SHIP, run: worker, queue: orders, idempotent: true}
`;

const long = (size) => `
kind: workflow
name: long
order: dag
steps:
${Array.from({ length: size }, (_, at) => {
  const before =
    at === 0
      ? []
      : [Math.floor((at * 3) / 4), ...(at % 3 === 0 ? [Math.floor(at / 2)] : [])].filter(
          (one, index, all) => one !== at && all.indexOf(one) === index,
        );
  return `  - {name: S${at}, run: worker, queue: long, idempotent: true, dependsOn: [${before.map((one) => `S${one}`).join(", ")}]}`;
}).join("\n")}
`;

let server;
let browser;
let token;
let worker;

before(async () => {
  server = await startServer();
  browser = await startBrowser();
  token = await person(server, "olga", ["runs:read", "runs:start", "runs:control"]);
  worker = caller(server, await person(server, "wanda", ["tasks:work"]));
  await publish(server, ORDER);
  await publish(server, long(500));
});
after(async () => {
  await browser?.close();
  await server?.end();
});

const start = async (definition, subject) =>
  (await caller(server, token)("POST", "/v1/runs", { definition, subject_ref: subject, input: {} })).run_id;

async function claim(queue) {
  const { tasks } = await worker("POST", `/v1/queues/${queue}/claim`, {
    worker_id: "w1",
    max: 1,
    lease_ms: 60000,
  });
  assert.equal(tasks.length, 1, "a task to claim");
  return tasks[0];
}

test("a run that fails says where and why, is retried from the page and goes on", async () => {
  const run = await start("order", "order-17");
  const page = await openPage(browser);
  await signIn(page, server, token);
  await page.goto(`${server.origin}/runs`);
  await page.getByRole("link", { name: "order-17" }).click();
  await page.getByRole("heading", { name: "order-17" }).waitFor();
  await accessible(page, "a run");

  const task = await claim("orders");
  await worker("POST", `/v1/tasks/${task.task_id}/dead`, {
    lease_token: task.lease_token,
    last_error: "customer unknown",
  });
  await page.reload();
  await page.getByRole("button", { name: /^CHECK/ }).click();
  await page.getByText("customer unknown").first().waitFor();
  await accessible(page, "the step drawer");

  const drawer = page.getByRole("complementary", { name: "CHECK" });
  await drawer.getByRole("button", { name: "retry" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "retry" }).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
  const again = await claim("orders");
  await worker("POST", `/v1/tasks/${again.task_id}/complete`, {
    lease_token: again.lease_token,
    output: { ok: true },
  });
  const last = await claim("orders");
  await worker("POST", `/v1/tasks/${last.task_id}/complete`, { lease_token: last.lease_token, output: {} });
  const { state } = await caller(server)("GET", `/v1/runs/${run}`);
  assert.equal(state, "completed");
  await page.reload();
  await page.getByText("2 of 2 steps").waitFor();
  assert.deepEqual(page.complaints, []);
});

test("500 steps mount at most 40 cards, and the 2-step run takes the same way", async () => {
  const page = await openPage(browser);
  await signIn(page, server, token);
  for (const [definition, size] of [
    ["order", 2],
    ["long", 500],
  ]) {
    const run = await start(definition, `size-${size}`);
    await page.goto(`${server.origin}/runs/${run}`);
    await page.locator(".react-flow__node").first().waitFor();
    const mounted = await page.locator(".react-flow__node").count();
    assert.ok(mounted <= 40 && mounted >= Math.min(size, 2), `${mounted} of ${size}`);
    assert.equal(await page.locator(".react-flow").count(), 1);
  }
  await page.getByLabel("Find a step").fill("S499");
  await page.getByLabel("Find a step").press("Enter");
  await page.getByRole("complementary", { name: "S499" }).waitFor();
  assert.deepEqual(page.complaints, []);
});

test("what was chosen is in the address", async () => {
  const run = await start("order", "order-address");
  const page = await openPage(browser);
  await signIn(page, server, token);
  await page.goto(`${server.origin}/runs/${run}?step=SHIP`);
  await page.getByRole("complementary", { name: "SHIP" }).waitFor();
  await page.getByRole("tab", { name: "List" }).click();
  await page.reload();
  await page.getByRole("list", { name: "List" }).waitFor();
  assert.equal(await page.getByRole("listitem").filter({ hasText: "SHIP" }).count(), 1);
});
