// Every page of operators and authors in every theme: nothing that axe finds, nothing wider than a phone, both languages.
import assert from "node:assert/strict";
import { test } from "node:test";
import { furnish } from "./furnish.mjs";
import { accessibleInThemes, caller, openPage, person, publish, setUp, signIn } from "./support.mjs";

/** The pages of others have tests of their own. */
const OTHERS = /^(in-tray|gate|ledger|verify|admin|account|governance|phone)/;

let server;
let browser;
let pages;

setUp(
  async (made) => {
    ({ server, browser } = made);
    const all = await furnish(server, { caller, person, publish });
    pages = all.filter(([name]) => !OTHERS.test(name));
    const operator = all.find(([name]) => name === "runs")[2];
    pages.push(["explain", "/explain/not-known", operator], ["nothing", "/runs?q=no-such-run", operator]);
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
}

/** Calls back for each page, signed in as who looks at it. */
async function each(page, look) {
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

test("no page is wider than a phone, and Vietnamese has words for everything", async () => {
  const page = await openPage(browser, { viewport: { width: 390, height: 844 } });
  const wide = [];
  await each(page, async (name) => {
    const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (over > 0) wide.push(`${name} by ${over} px`);
  });
  assert.deepEqual(wide, []);
  await page.addInitScript(() => localStorage.setItem("countersign.language", "vi"));
  await page.reload();
  const operator = pages.find(([name]) => name === "runs")[1];
  await visit(page, operator);
  await page.getByRole("heading", { name: "Lượt chạy" }).waitFor();
  await page.getByText("Cần xử lý").first().waitFor();
  const text = await page.locator("body").innerText();
  assert.doesNotMatch(text, /\b(act|drawer|frame|graph|page|reason|run|runs|search|step)\.[a-zA-Z]+\b/, text);
});
