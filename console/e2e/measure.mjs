// How much of the processor the first picture of a run of 500 steps costs: npm run measure. No test, because the number belongs to the
// machine; it is processor time and not time on the clock, so what else the machine does hardly changes it.
import { longWorkflow } from "./long-run.mjs";
import { caller, openPage, publish, signIn, startBrowser, startServer } from "./support.mjs";

const ROUNDS = 7;
const DATA = /\/v1\/(runs\/[^/]+(\/cells)?|definitions\/[^/]+\/versions\/[^/]+\/graph)(\?|$)/;

const server = await startServer();
const browser = await startBrowser();

/** Seconds that the page's process has computed so far, its workers included. */
async function computed(session, pid) {
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  return processInfo.find((one) => one.id === pid)?.cpuTime ?? 0;
}

/** The process that draws pages: the one that computes while this page does. */
async function renderer(session, page) {
  const read = async () => (await session.send("SystemInfo.getProcessInfo")).processInfo;
  const before = await read();
  await page.evaluate(() => {
    const until = performance.now() + 300;
    while (performance.now() < until);
  });
  const spent = (one) => one.cpuTime - (before.find((other) => other.id === one.id)?.cpuTime ?? one.cpuTime);
  const [most] = (await read()).filter((one) => one.type === "renderer").sort((a, b) => spent(b) - spent(a));
  return most.id;
}

try {
  await publish(server, longWorkflow());
  const admin = caller(server);
  const session = await browser.newBrowserCDPSession();
  const all = [];
  for (let round = 0; round < ROUNDS; round++) {
    const start = { definition: "long", subject_ref: `measured ${round}`, input: {} };
    const { run_id } = await admin("POST", "/v1/runs", start);
    const page = await openPage(browser);
    await signIn(page, server, server.token);
    // The page stands and waits for its data: what it costs until then is not the graph's.
    let release;
    const held = new Promise((done) => {
      release = done;
    });
    let asked = 0;
    await page.context().route(DATA, async (route) => {
      asked += 1;
      await held;
      await route.continue();
    });
    await page.goto(`${server.origin}/runs/${run_id}`);
    await page.waitForFunction(() => document.querySelector("[role=status][aria-label=Loading]"));
    while (asked < 2) await page.waitForTimeout(50);
    await page.waitForTimeout(500);
    const pid = await renderer(session, page);
    const before = await computed(session, pid);
    release();
    await page.locator(".react-flow__node").first().waitFor();
    // Two frames: the picture is on the screen.
    await page.evaluate(
      () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))),
    );
    const spent = Math.round(((await computed(session, pid)) - before) * 1000);
    const nodes = await page.locator(".react-flow__node").count();
    all.push(spent);
    process.stdout.write(`round ${round + 1}: ${spent} ms of processor, ${nodes} cards mounted\n`);
    await page.context().close();
  }
  const sorted = [...all].sort((a, b) => a - b);
  process.stdout.write(
    `first picture of 500 steps and 700 edges: median ${sorted[ROUNDS >> 1]} ms of processor after the data\n`,
  );
} finally {
  await browser.close();
  await server.end();
}
