// Makes a picture of every page in both themes: make screenshots. Arguments: the directory to write to.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { furnish } from "./furnish.mjs";
import { small } from "./png.mjs";
import { caller, openPage, person, publish, signIn, startBrowser, startServer } from "./support.mjs";

const out = process.argv[2] ?? "../docs/screenshots";
/** They draw a graph, which is laid out in a worker. */
const GRAPHS = [
  "run",
  "run-long",
  "run-lanes",
  "run-step",
  "definition",
  "definition-expanded",
  "definition-diff",
  "editor",
  "proposal",
  "proposal-edit",
];
const PHONE = ["in-tray", "gate", "runs", "run", "runbook", "governance", "proposal"];

mkdirSync(out, { recursive: true });
const server = await startServer("[executors.shell]\nenabled = true\n");
const browser = await startBrowser();

async function picture(page, name) {
  await page.getByRole("status", { name: "Loading" }).first().waitFor({ state: "detached" });
  // Names come a moment after the page.
  await page.waitForTimeout(500);
  writeFileSync(join(out, `${name}.png`), small(await page.screenshot()));
}

try {
  const pages = await furnish(server, { caller, person, publish });
  for (const theme of ["light", "dark"]) {
    const page = await openPage(browser, { viewport: { width: 1280, height: 800 }, reducedMotion: "reduce" });
    await page.addInitScript((theme) => localStorage.setItem("countersign.theme", theme), theme);
    await page.goto(`${server.origin}/sign-in`);
    await page.getByLabel("Token", { exact: true }).waitFor();
    await picture(page, `sign-in-${theme}`);
    let who;
    const visit = async ([name, path, token], prefix = "") => {
      if (token !== who) {
        await page.context().clearCookies();
        await signIn(page, server, token);
        who = token;
      }
      await page.goto(`${server.origin}${path}`);
      await page.locator("h1").first().waitFor();
      if (GRAPHS.includes(name)) await page.locator(".react-flow__node").first().waitFor();
      await picture(page, `${prefix}${name}-${theme}`);
    };
    for (const one of pages) await visit(one);
    await page.setViewportSize({ width: 390, height: 844 });
    for (const one of pages.filter(([name]) => PHONE.includes(name))) await visit(one, "phone-");
    await page.context().close();
  }
} finally {
  await browser.close();
  await server.end();
}
