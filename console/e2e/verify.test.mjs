// The page that verifies a bundle in the browser, without a connection, with the verdict of the binary.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { logKey, verdicts } from "./evidence.mjs";
import { accessible, caller, openPage, publish, setUp } from "./support.mjs";
import { unzip, zip } from "./zip.mjs";

const NOTE = `
kind: process
name: note
states: [open, closed]
initial_state: open
terminal_states: [closed]
transitions:
  - {from: open, action: close, to: closed}
`;

let server;
let browser;
let directory;
let key;
let genuine;

setUp(async (made) => {
  ({ server, browser } = made);
  directory = mkdtempSync(join(tmpdir(), "countersign-verify-"));
  await publish(server, NOTE);
  const admin = caller(server);
  const { instance_id } = await admin("POST", "/v1/processes", {
    definition: "note",
    subject_ref: "note-1",
  });
  await admin("POST", `/v1/processes/${instance_id}/transitions`, { action: "close", reason: "done" });
  const answer = await fetch(`${server.origin}/v1/ledger/export?instance_id=${instance_id}`, {
    headers: { authorization: `Bearer ${server.token}` },
  });
  genuine = Buffer.from(await answer.arrayBuffer());
  key = await logKey(server);
});
after(() => {
  rmSync(directory, { recursive: true, force: true });
});

/** The page, loaded, and from then on without a connection. */
async function offline() {
  const page = await openPage(browser);
  await page.goto(`${server.origin}/verify`);
  await page.getByText("It works without a connection.").waitFor();
  await page.context().setOffline(true);
  return page;
}

/** Drops a file where the page takes bundles, as a person would. */
async function drop(page, name, bytes) {
  const files = await page.evaluateHandle(
    ([name, text]) => {
      const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
      const transfer = new DataTransfer();
      transfer.items.add(new File([bytes], name, { type: "application/zip" }));
      return transfer;
    },
    [name, bytes.toString("base64")],
  );
  await page.locator("[data-drop]").dispatchEvent("drop", { dataTransfer: files });
}

/** What the page says of each claim. */
async function shown(page) {
  const claims = page.locator("section > ul").first().locator(":scope > li");
  return claims.evaluateAll((rows) =>
    rows.map((row) => [...row.firstElementChild.children].slice(1).map((part) => part.textContent)),
  );
}

async function ofBinary(name, bytes) {
  const path = join(directory, name);
  writeFileSync(path, bytes);
  return (await verdicts(path, key)).binary;
}

const wordsOf = (verdict) => verdict.claims.map((claim) => [claim.title, claim.result]);

test("a genuine bundle is verified, without a connection", async () => {
  const page = await offline();
  await page.getByLabel("Key of the log").fill(key);
  await drop(page, "genuine.zip", genuine);
  await page.getByRole("heading", { name: "Verified" }).waitFor();
  const binary = await ofBinary("genuine.zip", genuine);
  assert.equal(binary.result, "verified");
  await page.getByText("verified", { exact: true }).first().waitFor();
  assert.deepEqual(await shown(page), wordsOf(binary));
  await page.context().setOffline(false);
  await accessible(page, "a verified bundle");
  assert.deepEqual(page.complaints, []);
});

test("a bundle with one changed letter is rejected, in the words of the binary", async () => {
  const files = unzip(genuine);
  const records = files.find(([name]) => name === "records.jsonl");
  const text = records[1].toString();
  const changed = text.replace(/(\\"reason\\":\\")done/, "$1gone");
  assert.notEqual(changed, text);
  records[1] = Buffer.from(changed);
  const tampered = zip(files);
  const page = await offline();
  await page.getByLabel("Key of the log").fill(key);
  await drop(page, "tampered.zip", tampered);
  await page.getByRole("heading", { name: "This bundle does not hold" }).waitFor();
  const binary = await ofBinary("tampered.zip", tampered);
  assert.equal(binary.result, "failed-verification");
  await page.getByText("failed-verification", { exact: true }).waitFor();
  assert.deepEqual(await shown(page), wordsOf(binary));
  for (const { findings } of binary.claims)
    for (const finding of findings) await page.getByText(finding.detail).first().waitFor();
  await page.context().setOffline(false);
  await accessible(page, "a rejected bundle");
});

test("without a key the page shows the bundle's and asks to compare it", async () => {
  const page = await offline();
  await page.setInputFiles("input[type=file]", {
    name: "genuine.zip",
    mimeType: "application/zip",
    buffer: genuine,
  });
  await page.getByText(key, { exact: true }).waitFor();
  await page.getByRole("button", { name: "I have compared it; use this key" }).click();
  await page.getByRole("heading", { name: "Verified" }).waitFor();
});

test("what is no bundle is called unreadable", async () => {
  const page = await offline();
  await page.getByLabel("Key of the log").fill(key);
  await drop(page, "letter.zip", Buffer.from("no bundle"));
  await page.getByRole("alert").getByText("This is not a bundle that can be read").waitFor();
});
