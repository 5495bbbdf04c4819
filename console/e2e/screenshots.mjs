// Makes a picture of every page in both themes: make screenshots. Arguments: the directory to write to.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { furnish } from "./furnish.mjs";
import { caller, openPage, person, publish, signIn, startBrowser, startServer } from "./support.mjs";

const out = process.argv[2] ?? "../docs/screenshots";
mkdirSync(out, { recursive: true });
const server = await startServer("[executors.shell]\nenabled = true\n");
const browser = await startBrowser();
try {
  const pages = await furnish(server, { caller, person, publish });
  for (const theme of ["light", "dark"]) {
    const page = await openPage(browser);
    await page.addInitScript((theme) => localStorage.setItem("countersign.theme", theme), theme);
    await page.goto(`${server.origin}/sign-in`);
    await page.getByLabel("Token", { exact: true }).waitFor();
    await page.screenshot({ path: join(out, `sign-in-${theme}.png`) });
    for (const [name, path, token] of pages) {
      await page.context().clearCookies();
      await signIn(page, server, token);
      await page.goto(`${server.origin}${path}`);
      await page.waitForLoadState("networkidle").catch(() => {});
      await page.waitForTimeout(400);
      await page.screenshot({ path: join(out, `${name}-${theme}.png`) });
    }
    await page.setViewportSize({ width: 390, height: 844 });
    await page.context().clearCookies();
    await signIn(page, server, pages[0][2]);
    await page.screenshot({ path: join(out, `phone-${theme}.png`) });
    await page.context().close();
  }
} finally {
  await browser.close();
  await server.end();
}
