// A regulated server takes a person's act only with a signature: the page says so, and asks for the passkey.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { authenticator, caller, openPage, person, publish, setUp, signIn } from "./support.mjs";

const RELEASE = readFileSync(new URL("../../definitions/batch-release.yaml", import.meta.url), "utf8");
const SCOPES = ["workflows:start", "workflows:open-gate", "workflows:fire", "workflows:read", "audit:read"];

let server;
let browser;
let token;
let id;

setUp(async (made) => {
  ({ server, browser } = made);
  token = await person(server, "operator_chen", SCOPES, "Li Chen");
  await publish(server, RELEASE);
  const chen = caller(server, token);
  const start = { definition: "batch-release", subject_ref: "br-2026-0777" };
  id = (await chen("POST", "/v1/processes", start)).instance_id;
  for (const action of ["begin-testing", "complete-tests"])
    await chen("POST", `/v1/processes/${id}/transitions`, { action });
  // From here on it is regulated.
  const file = join(server.data, "..", "countersign.toml");
  writeFileSync(file, `regulated = true\n${readFileSync(file, "utf8")}`);
  await server.stop();
  await server.restart();
});

async function records() {
  return (await caller(server)("GET", `/v1/ledger/records?instance_id=${id}&order=asc`)).items;
}

test("an act waits for the passkey, and is recorded as signed", async () => {
  const page = await openPage(browser);
  await authenticator(page);
  await signIn(page, server, token);
  const before = (await records()).length;

  await page.goto(`${server.origin}/processes/${id}`);
  const ask = async () => {
    await page.getByRole("button", { name: "Ask for release" }).click();
    await page.getByRole("dialog").getByLabel("Reason").fill("all tests passed");
    await page.getByRole("dialog").getByRole("button", { name: "Record" }).click();
  };
  await ask();
  await page.getByText("accepts an act only with your signature").first().waitFor();
  assert.equal((await records()).length, before);

  // The first passkey needs no signature; the session goes on.
  await page.goto(`${server.origin}/admin`);
  await page.getByLabel("Name of the new passkey").fill("Chen's laptop");
  await page.getByRole("button", { name: "Add a passkey" }).click();
  await page.getByRole("listitem").filter({ hasText: "Chen's laptop" }).waitFor();

  await page.goto(`${server.origin}/processes/${id}`);
  await ask();
  await page.getByRole("dialog").waitFor({ state: "hidden" });
  const opened = (await records()).find((record) => record.action_ref === "gate_opened");
  assert.equal(opened?.assurance, "passkey_signed");
  assert.equal(opened?.actor_ref, "operator_chen");
});
