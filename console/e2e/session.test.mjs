// Sessions and connections: tabs, loss of the server, going away, and pages of other origins.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import {
  caller,
  openPage,
  openTab,
  person,
  publish,
  setUp,
  signIn,
  signOut,
  startServer,
} from "./support.mjs";

const LEAVE = `
kind: process
name: leave
states: [asked, granted]
initial_state: asked
terminal_states: [granted]
transitions:
  - {from: asked, action: grant, to: granted, guard: boss}
gate_spec:
  boss: {approver_ref: boss, scope: leave:grant}
`;

let server;
let browser;
let tokens;

setUp(async (made) => {
  ({ server, browser } = made);
  tokens = await furnish(server);
});

/** The people and what they ask for. */
async function furnish(server) {
  const tokens = {
    boss: await person(server, "boss", ["workflows:read", "audit:read"]),
    clerk: await person(server, "clerk", ["workflows:start", "workflows:open-gate", "workflows:read"]),
  };
  await publish(server, LEAVE);
  return tokens;
}

/** Asks the boss for something. */
async function ask(subject, at = server, who = tokens.clerk) {
  const clerk = caller(at, who);
  const { instance_id } = await clerk("POST", "/v1/processes", { definition: "leave", subject_ref: subject });
  await clerk("POST", `/v1/processes/${instance_id}/gates`, { action: "grant" });
  return instance_id;
}

const row = (page, subject) => page.getByRole("link", { name: new RegExp(`grant of ${subject}\\b`, "i") });

/** The pointer moves as long as the work lasts: someone is there. */
async function present(page, work) {
  let done = false;
  const moving = (async () => {
    for (let at = 0; !done; at++) {
      await page.mouse.move(700 + (at % 50), 20);
      await new Promise((next) => setTimeout(next, 500));
    }
  })();
  try {
    return await work();
  } finally {
    done = true;
    await moving;
  }
}

test("two tabs share one stream, and both are live", async () => {
  const first = await openPage(browser);
  const streams = [];
  first.context().on("request", (request) => {
    if (request.url().includes("/v1/stream")) streams.push(request.frame().page());
  });
  await signIn(first, server, tokens.boss);
  await ask("first-week");
  await row(first, "first-week").waitFor();
  const second = await openTab(first.context());
  await second.goto(`${server.origin}/inbox`);
  await row(second, "first-week").waitFor();
  await ask("second-week");
  await row(first, "second-week").waitFor();
  await row(second, "second-week").waitFor();
  assert.ok(streams.length > 0);
  assert.ok(
    streams.every((page) => page === first),
    "the second tab opened a stream",
  );
  // The tab that listens for both is closed: the other takes over.
  const takesOver = second.waitForRequest(/\/v1\/stream/);
  await first.close();
  await takesOver;
  await ask("third-week");
  await row(second, "third-week").waitFor();
  assert.deepEqual([...first.complaints, ...second.complaints], []);
  await second.context().close();
});

test("a lost connection is shown, and heals", async () => {
  const page = await openPage(browser);
  await signIn(page, server, tokens.boss);
  await page.getByRole("heading", { name: "In-tray" }).waitFor();
  await server.stop();
  const notice = page.getByText("Connection lost. What you see may be out of date");
  await notice.waitFor();
  await server.restart();
  await notice.waitFor({ state: "hidden" });
  await ask("after-the-outage");
  await row(page, "after-the-outage").waitFor();
  await page.context().close();
});

test("a person who goes away is warned, signed out, and comes back to where they were", async () => {
  // The shortest that the server takes. A person in front of the page is not signed out.
  const server = await startServer('idle = "10s"\n');
  try {
    const { boss, clerk } = await furnish(server);
    await ask("away", server, clerk);
    const page = await openPage(browser);
    const arrives = (wanted) => present(page, () => wanted.waitFor());
    await page.goto(`${server.origin}/sign-in`);
    await page.getByLabel("Token", { exact: true }).fill(boss);
    await present(page, async () => {
      await page.getByRole("button", { name: "Sign in", exact: true }).click();
      await page.waitForURL(/\/inbox/);
      await page.goto(`${server.origin}/ledger?actor_ref=clerk`);
      await page.getByRole("heading", { name: "Ledger" }).waitFor();
    });
    await page.getByRole("button", { name: "Stay signed in" }).click();
    await page.getByRole("button", { name: "Stay signed in" }).waitFor({ state: "hidden" });
    await page.getByText("You were signed out because nothing happened for a while.").waitFor();
    assert.equal(new URL(page.url()).pathname, "/sign-in");
    // The way back in the browser's history shows nothing either.
    await page.goBack();
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
    await page.getByLabel("Token", { exact: true }).fill(boss);
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await arrives(page.getByRole("cell", { name: "clerk" }).first());
    assert.match(page.url(), /\/ledger\?actor_ref=clerk/);
    await page.context().close();
  } finally {
    await server.end();
  }
});

test("signing out in one tab signs out the others", async () => {
  const first = await openPage(browser);
  await signIn(first, server, tokens.boss);
  const second = await openTab(first.context());
  await second.goto(`${server.origin}/ledger?actor_ref=clerk`);
  await second.getByRole("heading", { name: "Ledger" }).waitFor();
  await signOut(first);
  await second.getByText("Your session has ended.").waitFor();
  await signInHere(first, tokens.boss);
  await second.waitForURL(/\/ledger\?actor_ref=clerk/);
  await first.context().close();
});

test("a session that is ended elsewhere leads to the sign-in, and back", async () => {
  const token = await person(server, "temp", ["workflows:read"]);
  const page = await openPage(browser);
  await signIn(page, server, token);
  await page.goto(`${server.origin}/inbox?item=none`);
  await page.getByText("Nothing waits for your decision").waitFor();
  const admin = caller(server);
  const { tokens: issued } = await admin("GET", "/v1/actors/temp/keys");
  const { token: another } = await admin("POST", "/v1/actors/temp/tokens", {});
  await admin("POST", `/v1/actors/temp/tokens/${issued[0].credential_id}/revoke`, {});
  // Nothing is clicked: the stream ends, and the page finds out why.
  await page.getByText("Your session has ended.").waitFor();
  await signInHere(page, another);
  await page.waitForURL(/\/inbox\?item=none/);
  await page.context().close();
});

async function signInHere(page, token) {
  await page.getByLabel("Token", { exact: true }).fill(token);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
}

/** A page of another origin that tries what a forger would. It says how each attempt ended. */
const FORGERY = (target, path) => `<!doctype html><title>Free gift</title><pre id="log"></pre>
<form id="form" action="${target}${path}" method="post" enctype="text/plain" target="frame">
<input name='{"decision":"approve","reason":"' value='"}'></form><iframe name="frame"></iframe>
<script>
const log = (text) => (document.getElementById("log").textContent += text + "\\n");
(async () => {
  const body = JSON.stringify({ decision: "approve" });
  const json = { "content-type": "application/json" };
  const tries = [
    ["simple", "${path}", { method: "POST", mode: "no-cors", headers: { "content-type": "text/plain" }, body }],
    ["json", "${path}", { method: "POST", headers: json, body }],
    ["read", "/v1/me", {}],
    ["sign-out", "/v1/session", { method: "DELETE" }],
    ["sign-in", "/v1/session", { method: "POST", mode: "no-cors", headers: { "content-type": "text/plain" }, body: "{}" }],
  ];
  for (const [name, to, options] of tries)
    await fetch("${target}" + to, { credentials: "include", ...options }).then(
      (answer) => log(name + ": " + (answer.type === "opaque" ? "opaque" : answer.status)),
      () => log(name + ": refused"),
    );
  document.forms[0].submit();
  document.querySelector("iframe").onload = () => log("done");
})();
</script>`;

test("a page of another origin changes nothing and reads nothing", async () => {
  const id = await ask("forged-leave");
  const page = await openPage(browser);
  await signIn(page, server, tokens.boss);
  await row(page, "forged-leave").waitFor();
  const forger = createServer((_, answer) => {
    answer.setHeader("content-type", "text/html");
    answer.end(FORGERY(server.origin, `/v1/processes/${id}/gates/grant/decision`));
  });
  await new Promise((ready) => forger.listen(0, "localhost", ready));
  try {
    const answers = [];
    page.context().on("response", (response) => {
      if (response.url().endsWith("/decision")) answers.push(response.status());
    });
    // The same host on another port is the same site: the browser does send the cookie.
    const evil = await openTab(page.context());
    await evil.goto(`http://localhost:${forger.address().port}/`);
    await evil.getByText("done").waitFor();
    const log = await evil.locator("#log").textContent();
    assert.match(log, /simple: refused\njson: refused\nread: refused\nsign-out: refused\nsign-in: refused/);
    assert.ok(answers.length > 0 && answers.every((status) => status === 401), String(answers));
    const process = await caller(server)("GET", `/v1/processes/${id}`);
    assert.equal(process.gates[0].state, "Pending");
    // The person is still signed in, and still asked.
    await page.reload();
    await row(page, "forged-leave").waitFor();
    assert.deepEqual(page.complaints, []);
  } finally {
    forger.close();
  }
  await page.context().close();
});
