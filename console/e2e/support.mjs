// A real server with its own data, and a real Chromium. Everything is thrown away at the end.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { extname, join } from "node:path";
import { after, before } from "node:test";
import { AxeBuilder } from "@axe-core/playwright";
import { chromium } from "playwright-core";

/** Where the page's files come from instead of the binary: tries a page without building the server anew. */
const DIST = process.env.CONSOLE_DIST;
const SERVER = process.env.SERVER_BIN ?? new URL("../../target/debug/countersign", import.meta.url).pathname;

/** A server and a browser for the tests of a file; `furnish` makes what they need. */
export function setUp(furnish, { config = "" } = {}) {
  const made = {};
  before(async () => {
    made.server = await startServer(config);
    made.browser = await startBrowser();
    await furnish(made);
  });
  after(async () => {
    await made.browser?.close();
    await made.server?.end();
  });
}

/** A server on a free port of this machine. */
export async function startServer(config = "") {
  const directory = mkdtempSync(join(tmpdir(), "countersign-console-"));
  const data = join(directory, "data");
  const file = join(directory, "countersign.toml");
  const port = await freePort();
  // Passkeys belong to a name, not to an address.
  const origin = `http://localhost:${port}`;
  writeFileSync(file, `[console]\norigin = "${origin}"\n${config}`);
  const listen = `127.0.0.1:${port}`;
  const start = () => {
    const child = spawn(
      SERVER,
      ["serve", "--data-dir", data, "--config", file, "--listen", listen, "--log", "text"],
      {
        stdio: ["ignore", "pipe", "pipe"],
      },
    );
    child.said = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (child.said += chunk));
    return child;
  };
  let child = start();
  const up = async () => {
    for (let tries = 0; tries < 600; tries++) {
      const answer = await fetch(`${origin}/readyz`).catch(() => undefined);
      if (answer?.ok) return;
      assert.equal(child.exitCode, null, `the server ended: ${child.said}`);
      await new Promise((done) => setTimeout(done, 100));
    }
    assert.fail(`the server is not ready: ${child.said}`);
  };
  await up();
  origins.add(origin);
  const stop = async (signal = "SIGTERM") => {
    const ended = new Promise((done) => child.once("exit", done));
    child.kill(signal);
    await ended;
  };
  return {
    origin,
    data,
    token: readFileSync(join(data, "admin.token"), "utf8").trim(),
    stop,
    restart: async () => {
      child = start();
      await up();
    },
    end: async () => {
      if (child.exitCode === null) await stop();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

async function freePort() {
  const { createServer } = await import("node:net");
  return new Promise((done) => {
    const probe = createServer();
    probe.listen(0, "127.0.0.1", () => {
      const { port } = probe.address();
      probe.close(() => done(port));
    });
  });
}

/** Calls of the HTTP API with a token, for what a test needs beforehand. */
export function caller(server, token = server.token) {
  return async (method, path, body, type = "application/json") => {
    const answer = await fetch(`${server.origin}${path}`, {
      method,
      headers: { authorization: `Bearer ${token}`, ...(body === undefined ? {} : { "content-type": type }) },
      body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body),
    });
    const text = await answer.text();
    const data = text === "" ? {} : JSON.parse(text);
    assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${text}`);
    return data;
  };
}

/** A person with these scopes; gives their token. */
export async function person(server, actor, scopes = [], name = undefined) {
  const admin = caller(server);
  const made = await admin("POST", "/v1/actors", { actor_ref: actor, kind: "human", display_name: name });
  for (const scope of scopes) await admin("POST", "/v1/grants", { subject_ref: actor, action_scope: scope });
  return made.token;
}

export async function publish(server, yaml) {
  return caller(server)("POST", "/v1/definitions", yaml, "application/yaml");
}

export async function startBrowser() {
  const path = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
  assert.ok(path, "Chromium is not installed; scripts/setup.sh browser installs it");
  return chromium.launch({
    executablePath: path,
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  });
}

/** A new, empty profile of a browser. What a page complains about fails the test. */
export async function openPage(browser, options = {}) {
  const context = await browser.newContext({
    viewport: { width: 1360, height: 860 },
    locale: "en-GB",
    ...options,
  });
  if (DIST) await context.route(isFile, fromDist);
  return openTab(context);
}

/** A further tab of the same browser. */
export async function openTab(context) {
  const page = await context.newPage();
  page.complaints = [];
  page.on("console", (message) => {
    if (message.type() !== "error") return;
    // A refused request is an answer; the page shows it.
    if (/Failed to load resource/.test(message.text())) return;
    page.complaints.push(message.text());
  });
  page.on("pageerror", (error) => page.complaints.push(String(error)));
  return page;
}

/** Of our servers; a test may serve pages of its own. */
const origins = new Set();

function isFile(url) {
  return (
    origins.has(url.origin) && !/^\/(v1|errors|openapi\.json|healthz|readyz|metrics)(\/|$)/.test(url.pathname)
  );
}

async function fromDist(route) {
  const { origin, pathname } = new URL(route.request().url());
  const file = join(DIST, pathname);
  const path = extname(pathname) !== "" && existsSync(file) ? file : join(DIST, "index.html");
  const policy = pathname.startsWith(VERIFIES.path) ? VERIFIES.policy : await policyOf(origin);
  await route.fulfill({ path, headers: { "content-security-policy": policy, ...TYPES[extname(path)] } });
}

/** The content security policy, as the server sends it with every answer. */
async function policyOf(origin) {
  const answer = await fetch(`${origin}/healthz`);
  return answer.headers.get("content-security-policy");
}

/** The script with a policy of its own: a binary without the page does not send it, so it is read where the server has it. */
const VERIFIES = DIST
  ? /VERIFIES[^=]*=\s*\("(?<path>[^"]+)",\s*"(?<policy>[^"]+)"\)/.exec(
      readFileSync(new URL("../../crates/server/src/console.rs", import.meta.url), "utf8"),
    ).groups
  : undefined;
const TYPES = Object.fromEntries(
  [
    [".html", "text/html"],
    [".js", "text/javascript"],
    [".css", "text/css"],
    [".svg", "image/svg+xml"],
    [".wasm", "application/wasm"],
  ].map(([ending, type]) => [ending, { "content-type": type }]),
);

export async function signIn(page, server, token) {
  await page.goto(`${server.origin}/sign-in`);
  await page.getByLabel("Token", { exact: true }).fill(token);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  await page.waitForURL(/\/inbox/);
}

export async function signOut(page) {
  await page.locator("button[popovertarget=me]").first().click();
  await page.locator("#me").getByRole("button", { name: "Sign out" }).click();
  await page.waitForURL(/\/sign-in/);
}

/** A passkey authenticator that the browser takes for a built-in one. */
export async function authenticator(page, transport = "internal") {
  const session = await page.context().newCDPSession(page);
  await session.send("WebAuthn.enable");
  const { authenticatorId } = await session.send("WebAuthn.addVirtualAuthenticator", {
    options: {
      protocol: "ctap2",
      transport,
      hasResidentKey: true,
      hasUserVerification: true,
      isUserVerified: true,
      automaticPresenceSimulation: true,
    },
  });
  return {
    /** Whether its person touches it when it is asked. */
    touch: (enabled) => session.send("WebAuthn.setAutomaticPresenceSimulation", { authenticatorId, enabled }),
    /** Whether it recognises its person from now on. */
    verifyUser: (isUserVerified) =>
      session.send("WebAuthn.setUserVerified", { authenticatorId, isUserVerified }),
  };
}

const TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"];
/** The rules of axe that depend on colours. All others see the same page in every theme. */
const OF_COLOURS = ["color-contrast", "link-in-text-block"];

/** No finding of axe (WCAG 2.1 A and AA). */
export async function accessible(page, what, narrow = (axe) => axe.withTags(TAGS)) {
  // Not in legacy mode, it opens a page of its own each time, for frames of other origins. There are none.
  const { violations } = await narrow(new AxeBuilder({ page }).setLegacyMode(true)).analyze();
  const found = violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html).join(" | ")}`);
  assert.deepEqual(found, [], `axe on ${what}`);
}

/** The same in every theme, on a page that is loaded once. */
export async function accessibleInThemes(page, what) {
  const now = await page.locator("html").getAttribute("data-theme");
  await accessible(page, `${what}, ${now}`);
  for (const theme of ["light", "dark", "contrast"].filter((theme) => theme !== now)) {
    await chooseTheme(page, theme);
    await accessible(page, `${what}, ${theme}`, (axe) => axe.withRules(OF_COLOURS));
  }
}

/** As another tab of the browser does it. */
async function chooseTheme(page, theme) {
  await page.evaluate(async (newValue) => {
    localStorage.setItem("countersign.theme", newValue);
    dispatchEvent(new StorageEvent("storage", { key: "countersign.theme", newValue }));
    await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
  }, theme);
  assert.equal(await page.locator("html").getAttribute("data-theme"), theme);
}
