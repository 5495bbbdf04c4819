// Every page of operators and authors in every theme: nothing that axe finds, nothing wider than a phone, both languages.
import assert from "node:assert/strict";
import { test } from "node:test";
import { furnish } from "./furnish.mjs";
import { accessibleInThemes, caller, openPage, person, publish, setUp, signIn } from "./support.mjs";

/** The pages of others have tests of their own. */
const OTHERS = /^(in-tray|gate|ledger|verify|admin|account|phone)/;

let server;
let browser;
let pages;
/** Those of others, too. */
let everyPage;

setUp(
  async (made) => {
    ({ server, browser } = made);
    const all = await furnish(server, { caller, person, publish });
    pages = all.filter(([name]) => !OTHERS.test(name));
    const operator = all.find(([name]) => name === "runs")[2];
    pages.push(["nothing", "/runs?q=no-such-run", operator]);
    everyPage = all;
  },
  { config: "[executors.shell]\nenabled = true\n" },
);

async function visit(page, path) {
  await page.goto(`${server.origin}${path}`);
  await page.locator("h1").first().waitFor();
  await page
    .getByRole("status", { name: /Loading|Đang tải/ })
    .first()
    .waitFor({ state: "detached" });
  // There is more below the graph.
  if (/^\/proposals\/./.test(path)) await page.locator(".react-flow__node").first().waitFor();
}

const ofOperators = () => pages;

/** Calls back for each page, signed in as who looks at it. */
async function each(page, look, pages = ofOperators()) {
  let who;
  for (const [name, path, token] of pages) {
    if (token !== who) {
      await page.context().clearCookies();
      await signIn(page, server, token);
      who = token;
    }
    await visit(page, path);
    await look(name);
  }
}

test("axe finds nothing in any theme", async () => {
  const page = await openPage(browser, { reducedMotion: "reduce" });
  await each(page, (name) => accessibleInThemes(page, name));
  assert.deepEqual(page.complaints, []);
  await page.context().close();
});

test("no page is wider than a phone", async () => {
  const page = await openPage(browser, { viewport: { width: 390, height: 844 } });
  const wide = [];
  await each(page, async (name) => {
    const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (over > 0) wide.push(`${name} by ${over} px`);
  });
  assert.deepEqual(wide, []);
  await page.context().close();
});

test("every page has Vietnamese words for everything", async () => {
  const page = await openPage(browser);
  await signIn(page, server, everyPage[0][2]);
  await page.evaluate(() => localStorage.setItem("countersign.language", "vi"));
  let who = everyPage[0][2];
  for (const [name, path, token] of everyPage) {
    if (token !== who) {
      await page.evaluate(() => fetch("/v1/session", { method: "DELETE" }));
      await page.goto(`${server.origin}/sign-in`);
      await page.getByLabel("Mã truy cập", { exact: true }).fill(token);
      await page.getByRole("button", { name: "Đăng nhập", exact: true }).click();
      await page.waitForURL(/\/inbox/);
      who = token;
    }
    await visit(page, path);
    assert.equal(await page.locator("html").getAttribute("lang"), "vi", name);
    // The server's reasons are written in English, and marked so.
    const text = await page.evaluate(() => {
      for (const one of document.querySelectorAll("body [lang=en]")) one.remove();
      return document.body.innerText;
    });
    // Keys without words are shown as they are, and English ones are known by these words.
    const key =
      /\b(act|admin|drawer|frame|governance|graph|gate|page|proposal|reason|record|run|runs|search|step)\.[a-zA-Z]+\b/;
    const english =
      /\b(Loading|Show more|Cancel|Approve|Reject|Reason|Actions|Settings|started by|waits for)\b/;
    assert.doesNotMatch(text, key, `${name}: ${text}`);
    assert.doesNotMatch(text, english, `${name}: ${text}`);
  }
  // The page complains of every text that it looks for and does not have.
  assert.deepEqual(page.complaints, []);
  await page.context().close();
});

test("the Tab key reaches all that can be used, on every page", async () => {
  const page = await openPage(browser, { reducedMotion: "reduce" });
  const missed = [];
  await each(page, async (name) => {
    const count = await page.evaluate(() => {
      const usable = "a[href], button, input, select, textarea, summary, [tabindex]";
      const all = [...document.querySelectorAll(usable)].filter(
        (one) => one.tabIndex >= 0 && !one.disabled && one.checkVisibility({ visibilityProperty: true }),
      );
      for (const one of all) one.setAttribute("data-sweep", "");
      document.activeElement?.blur();
      return all.length;
    });
    for (let presses = 0; presses < count + 5; presses++) {
      await page.keyboard.press("Tab");
      await page.evaluate(() => document.activeElement?.removeAttribute("data-sweep"));
    }
    const left = await page.evaluate(() =>
      [...document.querySelectorAll("[data-sweep]")].map((one) => one.outerHTML.slice(0, 160)),
    );
    if (left.length > 0) missed.push([name, left]);
  });
  assert.deepEqual(missed, []);
  assert.deepEqual(page.complaints, []);
  await page.context().close();
});

test("the help of the keys and the search are accessible", async () => {
  const page = await openPage(browser, { reducedMotion: "reduce" });
  await signIn(page, server, pages[0][2]);
  await visit(page, "/runs");
  await page.keyboard.press("?");
  await page.getByRole("dialog").waitFor();
  await accessibleInThemes(page, "the help of the keys");
  await page.keyboard.press("Escape");
  await page.keyboard.press("/");
  await page.getByRole("dialog").waitFor();
  await accessibleInThemes(page, "the search");
  assert.deepEqual(page.complaints, []);
  await page.context().close();
});
