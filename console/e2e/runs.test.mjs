// The operator's side: lists and filters, a failure and its repair, keys, search, what is kept in the address.
import assert from "node:assert/strict";
import { test } from "node:test";
import { accessible, caller, openPage, person, publish, setUp, signIn } from "./support.mjs";

const ORDER = `
kind: workflow
name: order
order: linear
steps:
  - {name: CHECK, run: worker, queue: orders, retryPolicy: {maxRetries: 0}, onFailure: hold, idempotent: true}
  - {name: SHIP, run: worker, queue: orders, idempotent: true}
`;

const VISIT = `
kind: workflow
name: visit
order: linear
steps:
  - {name: CALL, run: human, pic: olga, deadline: 2d}
  - {name: REPORT, run: human, pic: olga}
`;

let server;
let browser;
let token;
let worker;

setUp(async (made) => {
  ({ server, browser } = made);
  token = await person(
    server,
    "olga",
    ["runs:read", "runs:start", "runs:control", "tasks:work", "definitions:publish"],
    "Olga Petrova",
  );
  worker = caller(server, await person(server, "wanda", ["tasks:work"]));
  await publish(server, ORDER);
  await publish(server, VISIT);
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
const complete = async (queue, output = {}) => {
  const task = await claim(queue);
  await worker("POST", `/v1/tasks/${task.task_id}/complete`, { lease_token: task.lease_token, output });
};
async function fail(queue, error) {
  const task = await claim(queue);
  await worker("POST", `/v1/tasks/${task.task_id}/dead`, {
    lease_token: task.lease_token,
    last_error: error,
  });
}

test("a run fails, says where and why, is retried from the step and completes, without a reload", async () => {
  await start("order", "order-17");
  const page = await openPage(browser);
  await signIn(page, server, token);
  await page.goto(`${server.origin}/runs`);
  await page.getByRole("link", { name: "order-17" }).click();
  await page.getByRole("heading", { name: "order-17" }).waitFor();
  await page.getByText("On track").waitFor();

  await fail("orders", "customer unknown");
  await page.getByText("Needs attention").waitFor();
  await page.getByText("customer unknown").waitFor();
  await page.getByRole("button", { name: "CHECK", exact: true }).click();
  const drawer = page.getByRole("complementary", { name: "CHECK" });
  await drawer.getByText("Failed", { exact: true }).waitFor();
  await drawer.getByRole("heading", { name: "Failed attempts" }).waitFor();
  await drawer.getByText("wanda").first().waitFor();
  await drawer.getByText("Records").click();
  await drawer.getByText("In progress → Failed").waitFor();

  await drawer.getByRole("button", { name: "Retry" }).click();
  const dialog = page.getByRole("dialog", { name: "Retry CHECK?" });
  await dialog.getByLabel("Reason").fill("the customer was entered");
  await dialog.getByRole("button", { name: "Retry" }).click();
  await dialog.waitFor({ state: "detached" });
  await complete("orders", { ok: true });
  await complete("orders");
  await page.getByText("Completed", { exact: true }).first().waitFor();
  await page.getByText("2 of 2 steps").waitFor();
  assert.deepEqual(page.complaints, []);
});

test("colours are counts and filters, and the address keeps them", async () => {
  await start("order", "order-red");
  await fail("orders", "no address");
  const page = await openPage(browser);
  await signIn(page, server, token);
  await page.goto(`${server.origin}/runs?q=order-red`);
  const red = page.getByRole("button", { name: /Needs attention/ });
  await red.getByText("1", { exact: true }).waitFor();
  await page
    .getByRole("button", { name: /On track/ })
    .getByText("0")
    .waitFor();
  await page.getByRole("button", { name: /On track/ }).click();
  await page.getByText("No runs match").waitFor();
  await red.click();
  await page
    .getByRole("row", { name: /order-red/ })
    .getByText("CHECK")
    .waitFor();
  await page.reload();
  await page.getByRole("row", { name: /order-red/ }).waitFor();
  assert.equal(await red.getAttribute("aria-pressed"), "true");
  assert.equal(await page.getByLabel("Subject or id").inputValue(), "order-red");
  assert.deepEqual(page.complaints, []);
});

test("what was chosen on a run is in the address", async () => {
  const run = await start("order", "order-address");
  const page = await openPage(browser);
  await signIn(page, server, token);
  await page.goto(`${server.origin}/runs/${run}?step=SHIP&lanes=run`);
  await page.getByRole("complementary", { name: "SHIP" }).waitFor();
  assert.equal(await page.getByLabel("Lanes").inputValue(), "run");
  await page.getByRole("tab", { name: "List" }).click();
  await page.reload();
  await page.getByRole("list", { name: "List" }).waitFor();
  assert.equal(
    await page.getByRole("list", { name: "List" }).getByRole("listitem").filter({ hasText: "SHIP" }).count(),
    1,
  );
  await page.getByRole("complementary", { name: "SHIP" }).waitFor();
  for (const tab of ["Timeline", "Input and output", "Records"]) {
    await page.getByRole("tab", { name: tab }).click();
    await page.waitForURL(/tab=/);
  }
  await page.getByText("Run started").waitFor();
});

test("the keyboard alone leads from the list to an action of a step", async () => {
  await start("visit", "visit-keys");
  const page = await openPage(browser);
  await signIn(page, server, token);
  await page.getByRole("navigation", { name: "Pages" }).waitFor();
  const focused = () => page.evaluate(() => document.activeElement?.textContent ?? "");
  await page.keyboard.press("?");
  await page.getByRole("heading", { name: "Keyboard shortcuts" }).waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("heading", { name: "Keyboard shortcuts" }).waitFor({ state: "detached" });
  await page.keyboard.press("g");
  await page.keyboard.press("r");
  await page.getByRole("link", { name: "visit-keys" }).waitFor();
  await page.keyboard.press("j");
  assert.equal(await focused(), "visit-keys", "j goes to the newest run");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "visit-keys" }).waitFor();
  await page.locator(".react-flow__node").first().waitFor();

  // Tab reaches one step of the graph; arrow keys move on from there.
  const label = () => page.evaluate(() => document.activeElement?.getAttribute("aria-label") ?? "");
  const onStep = (name) =>
    page.waitForFunction(
      (name) => document.activeElement?.getAttribute("aria-label")?.startsWith(`${name} ·`),
      name,
    );
  for (let tabs = 0; tabs < 40 && !(await label()).startsWith("CALL"); tabs++)
    await page.keyboard.press("Tab");
  await onStep("CALL");
  await page.keyboard.press("ArrowRight");
  await onStep("REPORT");
  await page.keyboard.press("ArrowLeft");
  await onStep("CALL");
  await page.keyboard.press("Enter");
  const drawer = page.getByRole("complementary", { name: "CALL" });
  await drawer.getByRole("button", { name: "Claim" }).waitFor();
  await page.keyboard.press(".");
  assert.equal(await focused(), "Claim");
  await page.keyboard.press("Enter");
  await page.getByRole("dialog", { name: "Claim CALL?" }).waitFor();
  await page.keyboard.press("Tab");
  await page.keyboard.press("Tab");
  assert.equal(await focused(), "Claim");
  await page.keyboard.press("Enter");
  await drawer.getByText("In progress", { exact: true }).waitFor();
  assert.deepEqual(page.complaints, []);
});

test("lists become compact by a switch, and stay so", async () => {
  await start("order", "order-dense");
  const page = await openPage(browser);
  await signIn(page, server, token);
  await page.goto(`${server.origin}/runs?q=order-dense`);
  const row = page.getByRole("row", { name: /order-dense/ });
  const height = async () => Math.round((await row.boundingBox()).height);
  assert.ok(Math.abs((await height()) - 41) <= 1, `${await height()} px`);
  await page.locator("button[popovertarget=me]").first().click();
  await page.getByRole("group", { name: "Lists" }).getByRole("button", { name: "Compact" }).click();
  const compact = await height();
  assert.ok(compact <= 32, `${compact} px`);
  await page.reload();
  await row.waitFor();
  assert.equal(await height(), compact);
  await accessible(page, "a compact list");
  assert.deepEqual(page.complaints, []);
});

test("search finds runs by subject, definitions and steps, and goes there", async () => {
  const run = await start("order", "order-search-77");
  const page = await openPage(browser);
  await signIn(page, server, token);
  await page.getByRole("navigation", { name: "Pages" }).waitFor();
  const find = async (text) => {
    await page.keyboard.press("/");
    await page.getByRole("combobox", { name: "Search" }).fill(text);
  };
  await find("order-search");
  await page.getByRole("option", { name: /order-search-77/ }).waitFor();
  await accessible(page, "the search");
  await page.keyboard.press("Enter");
  await page.waitForURL(`**/runs/${run}`);
  await page.getByRole("button", { name: /^SHIP/ }).waitFor();
  await find("ship");
  await page.getByRole("option", { name: /SHIP/ }).waitFor();
  await page.keyboard.press("Enter");
  await page.getByRole("complementary", { name: "SHIP" }).waitFor();
  await find(run);
  await page.getByRole("option", { name: /order-search-77/ }).waitFor();
  await page.keyboard.press("Escape");
  await find("visit");
  await page.getByRole("option", { name: /definition/ }).click();
  await page.getByRole("heading", { name: "visit" }).waitFor();
  assert.deepEqual(page.complaints, []);
});

test("my work lists what I am in charge of, and a refused action says why", async () => {
  await start("visit", "visit-refused");
  const page = await openPage(browser);
  await signIn(page, server, token);
  await page.goto(`${server.origin}/work`);
  await page
    .getByRole("row", { name: /visit-refused/ })
    .getByRole("link", { name: "CALL" })
    .click();
  const drawer = page.getByRole("complementary", { name: "CALL" });
  await drawer.getByText(/actions are refused now/).click();
  await drawer.getByText("Reopen", { exact: true }).waitFor();
  await drawer.getByText("Olga Petrova").first().waitFor();
  assert.deepEqual(page.complaints, []);
});

test("a run that has ended is begun anew from one of its steps", async () => {
  await publish(
    server,
    ORDER.replace("name: order", "name: again").replaceAll("queue: orders", "queue: again"),
  );
  const id = await start("again", "order-again");
  const operator = caller(server, token);
  await complete("again", { checked: "by wanda" });
  await operator("POST", `/v1/runs/${id}/cancel`, { reason: "the lorry broke down" });
  const page = await openPage(browser);
  await signIn(page, server, token);
  await page.goto(`${server.origin}/runs/${id}?step=SHIP`);
  await page.getByRole("button", { name: "Start a new run from this step" }).click();
  const dialog = page.getByRole("dialog", { name: "Start a run from SHIP?" });
  await accessible(page, "starting from a step");
  await dialog.getByRole("button", { name: "Start" }).click();
  await page.getByRole("link", { name: "Continues another run" }).waitFor();
  const begun = page.url().split("/runs/")[1].split("?")[0];
  const run = await operator("GET", `/v1/runs/${begun}`);
  assert.equal(run.continues, id);
  assert.deepEqual(run.steps.find((step) => step.name === "CHECK").output, { checked: "by wanda" });
  await operator("POST", `/v1/runs/${begun}/cancel`, { reason: "a test" });
  assert.deepEqual(page.complaints, []);
});
