// The graph from 2 steps to 500: what is mounted, what is drawn again, zoom, groups, lanes, search.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { caller, openPage, person, publish, signIn, startBrowser, startServer } from "./support.mjs";

const ORDER = `
kind: workflow
name: order
order: linear
steps:
  - {name: CHECK, run: worker, queue: orders, idempotent: true}
  - {name: SHIP, run: worker, queue: orders, idempotent: true}
`;

const PHASES = ["design", "build", "qualify", "release"];

/** 500 steps with 700 edges, in four groups. */
const long = () => {
  const edges = [];
  const steps = Array.from({ length: 500 }, (_, at) => {
    const before = at === 0 ? [] : [Math.floor((at * 3) / 4)];
    if (edges.length + before.length < 700 - (499 - at) && at > 1) {
      const second = Math.floor(at / 2);
      if (second !== before[0] && second !== at) before.push(second);
    }
    edges.push(...before);
    const group = PHASES[Math.floor(at / 125)];
    return `  - {name: S${at}, run: worker, queue: long, idempotent: true, category: ${group}, dependsOn: [${before.map((one) => `S${one}`).join(", ")}]}`;
  });
  return [`kind: workflow\nname: long\norder: dag\nsteps:\n${steps.join("\n")}\n`, edges.length];
};

const PARENT = `
kind: workflow
name: parent
order: linear
steps:
  - {name: ALL, run: workflow, workflow: order}
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
  await publish(server, PARENT);
  const [yaml, edges] = long();
  assert.ok(edges >= 700, `${edges} edges`);
  await publish(server, yaml);
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
    assert.deepEqual(page.complaints, []);
    await page.context().close();
  }
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
