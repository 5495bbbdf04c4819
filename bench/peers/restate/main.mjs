// Restate: a server with a store of its own calls our service, which journals its steps there. Driven by ../drive.py;
// the protocol stands in ../README.md. The server comes with the package and keeps everything in the directory that is
// our argument. A step is a `ctx.run`; journals are kept, so that they can be counted.
import { spawn } from "node:child_process";
import { createServer } from "node:net";
import { fileURLToPath } from "node:url";
import * as restate from "@restatedev/restate-sdk";
import { many, oneByOne, serve } from "./protocol.mjs";

const STEPS = 10;
const CONCURRENCY = 32;
const PRODUCERS = 8;
const KEPT = { hours: 24 };

const directory = process.argv[2];

/** A port at which nobody listens. */
const free = () =>
  new Promise((resolve) => {
    const probe = createServer().listen(0, "127.0.0.1", () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });
const [node, ingress, admin, service] = [await free(), await free(), await free(), await free()];

// The program itself, not the script that starts it: it must end with us.
const program = `node_modules/@restatedev/restate-server-${process.platform}-${process.arch}/bin/restate-server`;
const server = spawn(fileURLToPath(new URL(program, import.meta.url)), ["--base-dir", directory, "--node-name", "bench"], {
  stdio: ["ignore", "ignore", "inherit"],
  env: {
    ...process.env,
    RUST_LOG: "error",
    RESTATE_DISABLE_TELEMETRY: "true",
    RESTATE_BIND_ADDRESS: `127.0.0.1:${node}`,
    RESTATE_ADVERTISED_ADDRESS: `http://127.0.0.1:${node}/`,
    RESTATE_INGRESS__BIND_ADDRESS: `127.0.0.1:${ingress}`,
    RESTATE_ADMIN__BIND_ADDRESS: `127.0.0.1:${admin}`,
  },
});
process.on("exit", () => server.kill("SIGKILL"));
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(1));
server.on("exit", (status) => process.exit(status ?? 1));

async function post(url, body) {
  const headers = { "content-type": "application/json", accept: "application/json" };
  const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${url}: ${answer.status} ${text}`);
  return text ? JSON.parse(text) : null;
}

async function until(url) {
  for (;;) {
    const answer = await fetch(url).catch(() => null);
    if (answer?.ok) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

let ended = 0;
let [goal, reached] = [Infinity, () => {}];
const bench = restate.service({
  name: "bench",
  options: { journalRetention: KEPT },
  handlers: {
    chain: async (ctx) => {
      for (let i = 0; i < STEPS; i++) await ctx.run("noop", () => null);
    },
    job: async (ctx) => {
      await ctx.run("noop", () => null);
      if (++ended === goal) reached();
    },
  },
});
// What the SDK has to say would be taken for answers.
await restate.endpoint().setLogger(() => {}).bind(bench).listen(service);
await until(`http://127.0.0.1:${admin}/health`);
await until(`http://127.0.0.1:${ingress}/restate/health`);
await post(`http://127.0.0.1:${admin}/deployments`, { uri: `http://127.0.0.1:${service}` });

/** A query; just after the start the server does not know yet who could answer it. */
async function count(query) {
  for (let attempt = 0; ; attempt++) {
    try {
      return [(await post(`http://127.0.0.1:${admin}/query`, { query })).rows[0].n];
    } catch (error) {
      if (attempt === 50) throw error;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }
}

const chain = () => post(`http://127.0.0.1:${ingress}/bench/chain`, {});
/** Jobs are sent and not waited for: the last one says that it is there. */
async function jobs(count) {
  goal = ended + count;
  const all = new Promise((resolve) => (reached = resolve));
  await many(count, PRODUCERS, () => post(`http://127.0.0.1:${ingress}/bench/job/send`, {}));
  await all;
}
await serve({
  W1: (count) => many(count, CONCURRENCY, chain),
  W2: (count) => oneByOne(count, chain),
  W3: jobs,
  // The driver asks for rows of its store in this way.
  COUNT: (_, query) => count(query),
});
