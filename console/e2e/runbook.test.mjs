// A runbook: the world changes under it, it stops, the sovereign decides, the operator resumes, and it completes.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { drifted, until } from "./furnish-runs.mjs";
import { accessible, caller, openPage, person, publish, setUp, signIn } from "./support.mjs";

let server;
let browser;
let operator;

setUp(
  async (made) => {
    ({ server, browser } = made);
    operator = await person(server, "operator", ["runs:read", "runs:start", "runs:control"], "Li Chen");
    await publish(
      server,
      readFileSync(new URL("../../definitions/db-migrate.yaml", import.meta.url), "utf8"),
    );
  },
  { config: "[executors.shell]\nenabled = true\n" },
);

const start = async (definition, subject, input) =>
  (await caller(server, operator)("POST", "/v1/runs", { definition, subject_ref: subject, input })).run_id;

test("a runbook drifts, is approved by its sovereign, resumed by its operator, and completes", async () => {
  const { id, lead, owner } = await drifted(server, { caller, person }, start);
  const address = `${server.origin}/runs/${id}`;

  // The operator sees what differs and who decides, and cannot resume yet.
  const mine = await openPage(browser);
  await signIn(mine, server, operator);
  await mine.goto(address);
  await mine.getByRole("heading", { name: "Stopped: the world has changed" }).waitFor();
  await mine.getByText("Dana Brandt decides whether the run goes on.").waitFor();
  const row = mine.getByRole("row", { name: /schema/ });
  const [pinned, live] = await row.getByRole("cell").allTextContents();
  assert.match(pinned, /^[0-9a-f]{64}$/);
  assert.match(live, /^[0-9a-f]{64}$/);
  assert.notEqual(pinned, live);
  const chain = mine.getByRole("list", { name: "Steps of the runbook" });
  await chain.getByText("not yet migrated").waitFor();
  await chain.getByText("pinned schema").waitFor();
  await mine.getByRole("progressbar", { name: "Time used of the run" }).waitFor();
  assert.equal(await mine.getByRole("button", { name: "Resume" }).count(), 0);
  await accessible(mine, "a stopped runbook");

  // The sovereign decides, one click away.
  const theirs = await openPage(browser);
  await signIn(theirs, server, lead);
  await theirs.goto(address);
  await theirs.getByRole("link", { name: "Decide now" }).click();
  await theirs.getByLabel("Reason").fill("the index does no harm");
  await theirs.getByRole("button", { name: "Approve" }).click();

  // The operator resumes: the button appears without a reload.
  await mine.getByText(/Dana Brandt approved that the run goes on/).waitFor();
  await mine.getByRole("button", { name: "Resume" }).click();
  const dialog = mine.getByRole("dialog");
  await dialog.getByLabel("Reason").fill("approved by the DBA lead");
  await dialog.getByRole("button", { name: "Resume" }).click();
  await dialog.waitFor({ state: "detached" });

  // What was approved has changed, so both are asked again.
  await until(server, caller, id, (run) =>
    run.gates.some((gate) => gate.action === "migrate" && gate.state === "Pending"),
  );
  await owner("POST", `/v1/runs/${id}/gates/migrate/decision`, {
    decision: "approve",
    reason: "with the index",
  });
  const dana = caller(server, lead);
  await dana("POST", `/v1/runs/${id}/gates/migrate/decision`, {
    decision: "approve",
    reason: "with the index",
  });
  await mine.getByText("Completed", { exact: true }).first().waitFor();
  await mine.getByText("4 of 4 steps").waitFor();
  await chain.getByText("every row has one").waitFor();
  assert.deepEqual(mine.complaints, []);
  assert.deepEqual(theirs.complaints, []);
});
