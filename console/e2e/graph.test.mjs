// The graph from 2 steps to 500: what is mounted, what is drawn again, zoom, groups, lanes, search.
import assert from "node:assert/strict";
import { test } from "node:test";
import { longWorkflow, PHASES } from "./long-run.mjs";
import { accessible, caller, openPage, person, publish, setUp, signIn } from "./support.mjs";

const ORDER = `
kind: workflow
name: order
order: linear
steps:
  - {name: CHECK, run: worker, queue: orders, idempotent: true}
  - {name: SHIP, run: worker, queue: orders, idempotent: true}
`;

const PARENT = `
kind: workflow
name: parent
order: linear
steps:
  - {name: ALL, run: workflow, workflow: order}
  - {name: LAST, run: worker, queue: late, idempotent: true}
`;

let server;
let browser;
let token;
let worker;

setUp(async (made) => {
  ({ server, browser } = made);
  token = await person(server, "olga", ["runs:read", "runs:start", "runs:control"]);
  worker = caller(server, await person(server, "wanda", ["tasks:work"]));
  await publish(server, ORDER);
  await publish(server, PARENT);
  await publish(server, longWorkflow());
});

const start = async (definition, subject) =>
  (await caller(server, token)("POST", "/v1/runs", { definition, subject_ref: subject, input: {} })).run_id;

async function claim(queue) {
  const { tasks } = await worker("POST", `/v1/queues/${queue}/claim`, {
    worker_id: "w1",
    max: 1,
    lease_ms: 600000,
  });
  return tasks[0];
}

async function open(run) {
  const page = await openPage(browser);
  await signIn(page, server, token);
  await page.goto(`${server.origin}/runs/${run}`);
  await page.locator(".react-flow__node").first().waitFor();
  return page;
}

/** How often each mounted card was drawn. */
const draws = (page) =>
  page.evaluate(() =>
    Object.fromEntries(
      [...document.querySelectorAll("[data-draws]")].map((one) => [one.id, Number(one.dataset.draws)]),
    ),
  );

test("2 and 500 steps take the same component, and at most 40 cards are mounted", async () => {
  const drawnPerCard = {};
  for (const [definition, size] of [
    ["order", 2],
    ["long", 500],
  ]) {
    const page = await open(await start(definition, `size-${size}`));
    const mounted = await page.locator(".react-flow__node").count();
    assert.ok(mounted <= 40 && mounted >= 2, `${mounted} of ${size}`);
    assert.equal(await page.locator(".react-flow").count(), 1);
    assert.equal(await page.locator(".react-flow__node [data-draws]").count(), mounted, "one kind of card");
    await page.getByText(`0 of ${size} steps`).waitFor();
    const times = Object.values(await draws(page));
    drawnPerCard[size] = times.reduce((sum, one) => sum + one, 0) / times.length;
    assert.deepEqual(page.complaints, []);
    await page.context().close();
  }
  // The first picture of 500 steps is no more work per card than that of 2: nothing is drawn again and again while it opens.
  assert.ok(drawnPerCard[500] <= 2 * drawnPerCard[2] + 1, JSON.stringify(drawnPerCard));
});

test("a live change of one of 500 steps draws one card again", async () => {
  const run = await start("long", "patched");
  const page = await open(run);
  await page.getByText("Live", { exact: true }).waitFor();
  const card = page.getByRole("button", { name: /^S0 · Ready/ });
  await card.waitFor();
  const before = await draws(page);
  assert.ok(Object.keys(before).length > 2);
  let task = await claim("long");
  while (task.run_id !== run) task = await claim("long");
  await page.getByRole("button", { name: /^S0 · In progress/ }).waitFor();
  const after = await draws(page);
  const redrawn = Object.keys(after).filter((id) => after[id] !== before[id]);
  assert.deepEqual(redrawn, ["step-0"]);
  assert.equal(after["step-0"], before["step-0"] + 1);
  assert.deepEqual(page.complaints, []);
});

test("search pans to a step, zoom goes from 25 to 200 %, and detail follows the zoom", async () => {
  const page = await open(await start("long", "zoomed"));
  await page.getByLabel("Find a step").fill("S499");
  await page.getByText("1 match").waitFor();
  await page.getByLabel("Find a step").press("Enter");
  await page.getByRole("complementary", { name: "S499" }).waitFor();
  await page.getByRole("button", { name: /^S499/ }).waitFor();
  await page.getByRole("button", { name: "Close" }).click();

  const zoom = page.locator("output").filter({ hasText: "%" });
  const press = async (key, wanted) => {
    for (let presses = 0; presses < 20 && (await zoom.textContent()) !== wanted; presses++) {
      await page.keyboard.press(key);
      await page.waitForTimeout(180);
    }
    assert.equal(await zoom.textContent(), wanted);
  };
  await page.locator("main").focus();
  await press("+", "200 %");
  await press("-", "25 %");
  const box = await page.locator(".react-flow").boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await page.mouse.wheel(0, -300);
  await page.waitForFunction(
    () => !/^25 %/.test(document.querySelector("output:not(:empty)")?.textContent ?? ""),
  );
  assert.deepEqual(page.complaints, []);
});

test("groups collapse to chips with counts, and lanes are kept in the address", async () => {
  const page = await open(await start("long", "grouped"));
  const groups = page.getByRole("group", { name: "Groups" });
  for (const phase of PHASES) await groups.getByRole("button", { name: phase }).click();
  await page.getByRole("button", { name: /^design: 1 Ready, 124 Not started/ }).waitFor();
  await page.getByRole("button", { name: /^build: 125 Not started/ }).waitFor();
  await page.getByLabel("Lanes").selectOption({ label: "by category" });
  await page.reload();
  const chip = page.getByRole("button", { name: /^build: 125 Not started/ });
  await chip.waitFor();
  assert.match(page.url(), /lanes=category/);
  await page.locator(".react-flow").getByText("design", { exact: true }).first().waitFor();
  await chip.click();
  await chip.waitFor({ state: "detached" });
  assert.equal(await groups.getByRole("button", { name: "build" }).getAttribute("aria-pressed"), "false");
  assert.deepEqual(page.complaints, []);
});

/** Two fingers on the middle of the graph, that end so many times as far from each other as they began. */
async function pinch(page, by) {
  const { x, y, width, height } = await page.locator(".react-flow").boundingBox();
  const session = await page.context().newCDPSession(page);
  const middle = { x: x + width / 2, y: y + height / 2 };
  const touch = (type, apart) =>
    session.send("Input.dispatchTouchEvent", {
      type,
      touchPoints: (apart === undefined ? [] : [-apart, apart]).map((by, id) => ({
        id,
        x: middle.x + by / 2,
        y: middle.y,
      })),
    });
  const from = 100;
  await touch("touchStart", from);
  for (let step = 1; step <= 10; step++) await touch("touchMove", from * (1 + ((by - 1) * step) / 10));
  await touch("touchEnd");
}

test("two fingers zoom the graph, and neither beyond 200 % nor below 25 %", async () => {
  const page = await openPage(browser, { hasTouch: true });
  await signIn(page, server, token);
  await page.goto(`${server.origin}/runs/${await start("long", "pinched")}`);
  await page.locator(".react-flow__node").first().waitFor();
  const zoom = page.locator(".react-flow output");
  const percent = async () => Number.parseInt(await zoom.textContent(), 10);
  const before = await percent();
  await pinch(page, 1.5);
  await page.waitForFunction(
    (before) => Number.parseInt(document.querySelector(".react-flow output").textContent, 10) > before,
    before,
  );
  for (const [by, limit] of [
    [3, 200],
    [0.2, 25],
  ]) {
    for (let tries = 0; tries < 8 && (await percent()) !== limit; tries++) await pinch(page, by);
    await zoom.getByText(`${limit} %`).waitFor();
  }
  assert.deepEqual(page.complaints, []);
});

test("a sub-workflow is a chip with the counts of its run, which it opens", async () => {
  const page = await open(await start("parent", "with-child"));
  await page.getByRole("button", { name: /^ALL/ }).click();
  const drawer = page.getByRole("complementary", { name: "ALL" });
  await page.locator("#step-0").getByTitle("1 On track").waitFor();
  await drawer.getByRole("link", { name: "Open its run" }).click();
  await page.getByRole("button", { name: /^CHECK/ }).waitFor();
  await page.getByRole("link", { name: "Started by another run" }).waitFor();
  assert.deepEqual(page.complaints, []);
});

test("a sub-workflow shows its steps in place, live, and the address keeps that", async () => {
  const run = await start("parent", "unfolded");
  const page = await open(run);
  await page.getByText("Live", { exact: true }).waitFor();
  const unfold = page.getByRole("button", { name: "Show the steps of ALL" });
  assert.equal(await unfold.getAttribute("aria-expanded"), "false");
  assert.equal(await page.getByRole("button", { name: /^CHECK/ }).count(), 0);
  await unfold.click();
  await page.getByRole("button", { name: /^CHECK · Ready/ }).waitFor();
  // The steps come behind their sub-workflow, and before what follows it.
  const left = async (name) => (await page.getByRole("button", { name }).boundingBox()).x;
  const [all, check, ship, last] = [
    await left(/^ALL/),
    await left(/^CHECK/),
    await left(/^SHIP/),
    await left(/^LAST/),
  ];
  assert.ok(all < check && check < ship && ship < last, `${all} ${check} ${ship} ${last}`);
  await accessible(page, "an expanded sub-workflow");

  // What moves in the sub-workflow is seen here.
  const child = (await caller(server, token)("GET", `/v1/runs?parent_run_id=${run}`)).items[0].run_id;
  let task = await claim("orders");
  while (task.run_id !== child) task = await claim("orders");
  await page.getByRole("button", { name: /^CHECK · In progress/ }).waitFor();

  // A step of it opens with what belongs to its own run.
  await page.getByRole("button", { name: /^CHECK/ }).click();
  const drawer = page.getByRole("complementary", { name: "CHECK" });
  await drawer.getByText("w1").first().waitFor();
  await worker("POST", `/v1/tasks/${task.task_id}/complete`, { lease_token: task.lease_token, output: {} });
  await drawer.getByText("Completed", { exact: true }).first().waitFor();

  await page.reload();
  await page.getByRole("button", { name: /^CHECK · Completed/ }).waitFor();
  await drawer.waitFor();
  await page.getByRole("button", { name: "Close" }).click();
  await page.getByRole("button", { name: "Hide the steps of ALL" }).click();
  await page.getByRole("button", { name: /^CHECK/ }).waitFor({ state: "detached" });
  assert.doesNotMatch(page.url(), /expanded/);
  assert.deepEqual(page.complaints, []);
});
