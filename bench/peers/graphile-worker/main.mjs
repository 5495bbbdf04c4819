// graphile-worker: jobs only. Driven by ../drive.py; the protocol stands in ../README.md.
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import { many, serve } from "./protocol.mjs";

const PRODUCERS = 8;
const CONCURRENCY = 8;

const connectionString = process.argv[2];
const logger = new Logger(() => () => {});
let left = 0;
let reached;
const job = async () => {
  if (--left === 0) reached();
};
const utils = await makeWorkerUtils({ connectionString, logger, maxPoolSize: PRODUCERS });
await utils.migrate();
await run({
  connectionString,
  logger,
  concurrency: CONCURRENCY,
  maxPoolSize: CONCURRENCY + 2,
  noHandleSignals: true,
  taskList: { job },
});

await serve({
  W3: async (count) => {
    left = count;
    const ended = new Promise((resolve) => (reached = resolve));
    await many(count, PRODUCERS, () => utils.addJob("job", {}));
    await ended;
  },
});
