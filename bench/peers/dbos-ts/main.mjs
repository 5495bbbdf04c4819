// DBOS Transact for TypeScript. Driven by ../drive.py; the protocol stands in ../README.md.
import { DBOS } from "@dbos-inc/dbos-sdk";
import { many, oneByOne, serve } from "./protocol.mjs";

const STEPS = 10;
const CONCURRENCY = 32;

const noop = async () => {};
const chain = DBOS.registerWorkflow(
  async () => {
    for (let i = 0; i < STEPS; i++) await DBOS.runStep(noop, { name: "noop" });
  },
  { name: "chain" },
);

DBOS.setConfig({ name: "bench", systemDatabaseUrl: process.argv[2], systemDatabasePoolSize: 20, logLevel: "error" });
await DBOS.launch();
await serve({
  W1: (count) => many(count, CONCURRENCY, () => chain()),
  W2: (count) => oneByOne(count, () => chain()),
});
