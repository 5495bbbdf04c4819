// The pages of approver, auditor and administrator: accessible in every theme, and usable on a phone.
import assert from "node:assert/strict";
import { test } from "node:test";
import { accessibleInThemes, caller, openPage, publish, setUp, signIn } from "./support.mjs";

const RECIPE = `
kind: process
name: recipe-change
states: [draft, in-force]
initial_state: draft
terminal_states: [in-force]
transitions:
  - {from: draft, action: put-in-force, to: in-force, guard: sign-off}
gate_spec:
  sign-off: {approver_ref: admin, scope: recipe:sign-off}
`;

let server;
let browser;
let gates;
let record;
let instance;

setUp(async (made) => {
  ({ server, browser } = made);
  await publish(server, RECIPE);
  const admin = caller(server);
  gates = [];
  for (const subject of [
    "recipe-17",
    "recipe-with-a-very-long-name-that-does-not-end-where-one-would-expect-it",
  ]) {
    const { instance_id } = await admin("POST", "/v1/processes", {
      definition: "recipe-change",
      subject_ref: subject,
    });
    await admin("POST", `/v1/processes/${instance_id}/gates`, {
      action: "put-in-force",
      reason: "less salt",
    });
    const view = await admin("GET", `/v1/processes/${instance_id}`);
    gates.push(view.gates[0].step_id);
    instance ??= instance_id;
  }
  await admin("POST", `/v1/processes/${instance}/gates/put-in-force/decision`, {
    decision: "approve",
    reason: "tasted",
  });
  await admin("POST", "/v1/ledger/seal", {});
  const { items } = await admin("GET", `/v1/ledger/records?instance_id=${instance}&action_ref=gate_decided`);
  record = items[0].event_id;
});

async function open(options) {
  const page = await openPage(browser, options);
  await signIn(page, server, server.token);
  return page;
}

test("axe finds nothing in any theme", async () => {
  const page = await open({ reducedMotion: "reduce" });
  const pages = [
    ["/inbox", "You sign:"],
    [`/gate/${gates[0]}`, "Approved"],
    [`/gate/${gates[1]}`, "You sign:"],
    ["/ledger", "Newest checkpoint"],
    [`/ledger?instance_id=${instance}&record=${record}`, "tasted"],
    ["/verify", "It works without a connection."],
    ["/admin", "This browser"],
    ["/admin?tab=actors", "Administrator"],
    ["/admin?tab=actors&subject_ref=admin", "Issue a further token"],
    ["/admin?tab=grants", "audit:read"],
    ["/sign-in?why=idle", "You were signed out"],
  ];
  for (const [path, text] of pages) {
    await page.goto(`${server.origin}${path}`);
    await page.locator("main").getByText(text).first().waitFor();
    await accessibleInThemes(page, path);
  }
  assert.deepEqual(page.complaints, []);
});

test("in-tray and gate on a phone: nothing is cut off, and the buttons are large enough for a thumb", async () => {
  const page = await open({ viewport: { width: 360, height: 740 }, hasTouch: true });
  const fits = async (what) => {
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= 360, `${what} is ${width} px wide`);
  };
  await page.getByRole("heading", { name: "In-tray" }).waitFor();
  await fits("the in-tray");
  await page.getByRole("link", { name: /recipe-with-a-very-long-name/ }).tap();
  await page.getByText("less salt").waitFor();
  await fits("the gate");
  for (const name of ["Approve", "Reject"]) {
    const { height, width } = await page.getByRole("button", { name }).boundingBox();
    assert.ok(height >= 44 && width >= 44, `${name}: ${width} × ${height}`);
  }
  await page.getByLabel("Reason").fill("tasted");
  await page.getByRole("button", { name: "Approve" }).tap();
  await page.getByText("You signed:").waitFor();
  await fits("what was signed");
});

test("a decision with the keyboard alone", async () => {
  const admin = caller(server);
  const { instance_id } = await admin("POST", "/v1/processes", {
    definition: "recipe-change",
    subject_ref: "recipe-18",
  });
  await admin("POST", `/v1/processes/${instance_id}/gates`, { action: "put-in-force" });
  const { gates } = await admin("GET", `/v1/processes/${instance_id}`);
  const page = await open();
  await page.goto(`${server.origin}/inbox?item=${gates[0].step_id}`);
  await page.getByRole("heading", { name: "Put-in-force of recipe-18" }).waitFor();
  const focused = () => page.evaluate(() => document.activeElement?.getAttribute("data-decision"));
  const reason = page.getByLabel("Reason");
  for (let presses = 0; !(await reason.evaluate((field) => field === document.activeElement)); presses++) {
    assert.ok(presses < 60, "the reason is not reached with the Tab key");
    await page.keyboard.press("Tab");
  }
  await page.keyboard.type("tasted again");
  await page.keyboard.press("Tab");
  assert.equal(await focused(), "approve");
  await page.keyboard.press("Enter");
  await page.getByText("You signed:").waitFor();
});
