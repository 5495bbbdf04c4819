// The author's side: problems at their place, publishing, two versions compared, a run started from its input schema.
import assert from "node:assert/strict";
import { test } from "node:test";
import { accessible, caller, openPage, person, setUp, signIn } from "./support.mjs";

const FIRST = `kind: workflow
name: supply
order: dag
inputSchema:
  type: object
  required: [study, packs]
  properties:
    study: {type: string, description: "For example CT-118."}
    packs: {type: integer}
    blinded: {type: boolean}
    route: {enum: [air, road]}
gate_spec:
  qp: {approver_ref: maria, scope: "supply:release"}
steps:
  - {name: forecast, run: worker, queue: planning, idempotent: true}
  - {name: labels, run: worker, queue: line, idempotent: true, dependsOn: [forecast]}
  - {name: coolers, run: worker, queue: line, idempotent: true, when: "\${input.route == 'air'}", dependsOn: [forecast]}
  - {name: ship, run: worker, queue: line, idempotent: true, gate: qp, dependsOn: [labels, coolers]}
timeout: 30d
`;
const SECOND = FIRST.replace(
  "name: labels, run: worker, queue: line",
  "name: labels, run: worker, queue: print",
).replace(
  "  - {name: ship,",
  "  - {name: weigh, run: worker, queue: line, idempotent: true, dependsOn: [labels]}\n  - {name: ship,",
);

const PACKING = `kind: workflow
name: packing
order: linear
steps:
  - {name: pick, run: worker, queue: line, idempotent: true}
  - {name: label, run: workflow, workflow: labelling}
`;
const LABELLING = `kind: workflow
name: labelling
order: linear
steps:
  - {name: print, run: worker, queue: line, idempotent: true}
`;
const DELIVERY = `kind: workflow
name: delivery
order: linear
steps:
  - {name: pack, run: workflow, workflow: packing}
  - {name: drive, run: worker, queue: road, idempotent: true}
`;

let server;
let browser;
let token;

setUp(async (made) => {
  ({ server, browser } = made);
  token = await person(server, "ada", ["definitions:publish", "runs:start", "runs:read"], "Ada Berg");
  await person(server, "maria", [], "Maria Santos");
});

test("the editor shows problems at line and column, publishes, and compares two versions", async () => {
  const page = await openPage(browser);
  await signIn(page, server, token);
  await page.goto(`${server.origin}/definitions`);
  await page.getByText("No definitions yet").waitFor();
  await page.getByRole("link", { name: "Write a definition" }).click();
  const source = page.getByLabel("Source");
  await source.fill(
    FIRST.replace("dependsOn: [forecast]}\n  - {name: coolers", "dependsOn: [forcast]}\n  - {name: coolers"),
  );
  const problem = page.getByRole("button", { name: /^16:\d+ / });
  await problem.waitFor();
  assert.match(await problem.textContent(), /forcast/);
  assert.equal(await page.getByRole("button", { name: "Publish" }).isDisabled(), true);
  await problem.click();
  const line = await source.evaluate(
    (field) => field.value.slice(0, field.selectionStart).split("\n").length,
  );
  assert.equal(line, 16, "the cursor is in the line of the problem");

  await source.fill(FIRST);
  await page.getByText("No problems found.").waitFor();
  await page.getByRole("button", { name: /^coolers.*if input\.route == 'air'/ }).waitFor();
  await page.getByText("AND/OR", { exact: true }).waitFor();
  for (const word of ["if", "always"]) await page.getByText(word, { exact: true }).first().waitFor();
  for (const branch of ["branch 1", "branch 2"]) await page.getByText(branch, { exact: true }).waitFor();
  await page.getByRole("button", { name: /^ship.*approval by maria/ }).waitFor();
  await page.getByText("MS", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Publish" }).click();
  await page.waitForURL("**/definitions/supply");
  await page.getByText("published by Ada Berg").waitFor();

  await page.getByRole("link", { name: "Edit as a new version" }).click();
  await page.waitForFunction(() => document.getElementById("yaml")?.value.includes("name: supply"));
  await source.fill(SECOND);
  await page.getByText("No problems found.").waitFor();
  await page.getByRole("button", { name: "Publish" }).click();
  await page.waitForURL("**/definitions/supply");
  await page.getByRole("tab", { name: "Changes" }).click();
  await page.getByRole("button", { name: /^weigh.*Added/ }).waitFor();
  await page.getByRole("button", { name: /^labels.*Changed/ }).waitFor();
  await page.getByRole("row", { name: /queue.*line.*print/ }).waitFor();
  await page.reload();
  await page.getByRole("button", { name: /^weigh.*Added/ }).waitFor();
  assert.deepEqual(page.complaints, []);
});

test("the start form follows the input schema and starts a run", async () => {
  await caller(server)(
    "POST",
    "/v1/definitions",
    FIRST.replace("supply", "supply-start"),
    "application/yaml",
  );
  const page = await openPage(browser);
  await signIn(page, server, token);
  await page.goto(`${server.origin}/definitions/supply-start?tab=start`);
  await page.getByText("For example CT-118.").waitFor();
  await page.getByRole("button", { name: "Start" }).click();
  assert.match(page.url(), /tab=start/, "required fields are asked for");
  await page.getByLabel("Subject").fill("wave 3");
  await page.getByLabel("study").fill("CT-118");
  await page.getByLabel("packs").fill("1200");
  await page.getByLabel("blinded").selectOption("true");
  await page.getByLabel("route").selectOption("road");
  await page.getByRole("button", { name: "Start" }).click();
  await page.getByRole("heading", { name: "wave 3" }).waitFor();
  await page.getByRole("tab", { name: "Input and output" }).click();
  await page.getByText("1,200").waitFor();
  const id = page.url().split("/runs/")[1].split("?")[0];
  const { input } = await caller(server)("GET", `/v1/runs/${id}`);
  assert.deepEqual(input, { study: "CT-118", packs: 1200, blinded: true, route: "road" });

  // What is left empty is left out, a choice of yes and no too.
  await page.goto(`${server.origin}/definitions/supply-start?tab=start`);
  await page.getByLabel("study").fill("CT-119");
  await page.getByLabel("packs").fill("7");
  await page.getByRole("button", { name: "Start" }).click();
  await page.waitForURL(/\/runs\//);
  const second = page.url().split("/runs/")[1].split("?")[0];
  const least = await caller(server)("GET", `/v1/runs/${second}`);
  assert.deepEqual(least.input, { study: "CT-119", packs: 7 });
  assert.deepEqual(page.complaints, []);
});

test("the Standard Process View shows a sub-workflow collapsed, expands it in place, and the address keeps that", async () => {
  const publish = (yaml) => caller(server)("POST", "/v1/definitions", yaml, "application/yaml");
  for (const yaml of [LABELLING, PACKING, DELIVERY]) await publish(yaml);
  const page = await openPage(browser);
  await signIn(page, server, token);
  await page.goto(`${server.origin}/definitions/delivery`);
  const card = (name) => page.getByRole("button", { name });
  await card(/^pack/).getByText("packing@1").waitFor();
  assert.equal(await card(/^pick/).count(), 0);
  await card("Show the steps of pack").click();
  await card(/^pick/).waitFor();
  assert.equal(await card(/^print/).count(), 0, "the innermost one stays collapsed");
  await card("Show the steps of label").click();
  await card(/^print/).waitFor();
  // Each behind the step that runs it, and before what follows.
  await page.getByRole("button", { name: "Show all steps" }).click();
  await card(/^drive/).waitFor();
  const places = [];
  for (const name of [/^pack/, /^pick/, /^label/, /^print/, /^drive/])
    places.push((await card(name).boundingBox()).x);
  assert.deepEqual(
    places,
    [...places].sort((a, b) => a - b),
  );
  await accessible(page, "an expanded definition");
  await page.reload();
  await card(/^print/).waitFor();
  await card("Hide the steps of pack").click();
  await card(/^pick/).waitFor({ state: "detached" });
  await card(/^print/).waitFor({ state: "detached" });
  assert.deepEqual(page.complaints, []);
});
