// openworkflow: a worker claims runs and replays each from its step attempts. Driven by ../drive.py; the protocol stands
// in ../README.md. Its own loop sleeps 100 ms and more when it finds nothing, and whoever waits for a result polls every
// second; so this ticks the worker itself, and knows that a run has ended by the commit that ends it.
import { setImmediate, setTimeout } from "node:timers/promises";
import { OpenWorkflow } from "openworkflow";
import { many, oneByOne, serve } from "./protocol.mjs";

const STEPS = 10;
const PRODUCERS = 8;
const url = process.argv[2];

const sqlite = url.startsWith("sqlite://");
// SQLite is called synchronously there: runs beside each other take turns.
const CONCURRENCY = sqlite ? 1 : 8;
const POLL_MS = 1;

async function connect() {
  if (sqlite) {
    const { BackendSqlite } = await import("openworkflow/sqlite");
    return BackendSqlite.connect(url.replace("sqlite://", ""));
  }
  const { BackendPostgres } = await import("openworkflow/postgres");
  return BackendPostgres.connect(url);
}

const backend = await connect();
let completed = 0;
const complete = backend.completeWorkflowRun.bind(backend);
backend.completeWorkflowRun = async (params) => {
  const run = await complete(params);
  completed += 1;
  return run;
};

const engine = new OpenWorkflow({ backend });
const chain = engine.defineWorkflow({ name: "chain" }, async ({ step }) => {
  for (let i = 0; i < STEPS; i++) await step.run({ name: `noop-${i}` }, () => null);
});

/** Starts `count` runs and works until all of them have ended. */
async function produce(count, worker) {
  const goal = completed + count;
  const started = many(count, PRODUCERS, () => chain.run());
  while (completed < goal) {
    if ((await worker.tick()) === 0) await (sqlite ? setImmediate() : setTimeout(POLL_MS));
  }
  await started;
}

await serve({
  W1: (count) => produce(count, engine.newWorker({ concurrency: CONCURRENCY })),
  W2: (count) => {
    const worker = engine.newWorker({ concurrency: 1 });
    return oneByOne(count, () => produce(1, worker));
  },
});
