// pg-boss: jobs only. Driven by ../drive.py; the protocol stands in ../README.md. Its own workers poll twice a second
// at most, so these fetch and complete by themselves, in batches, as its API allows.
import { PgBoss } from "pg-boss";
import { many, serve } from "./protocol.mjs";

const PRODUCERS = 8;
const WORKERS = 4;
const BATCH = 50;

const boss = new PgBoss({ connectionString: process.argv[2], max: PRODUCERS + WORKERS, supervise: false, schedule: false });
boss.on("error", console.error);
await boss.start();
await boss.createQueue("bench");

async function work(left) {
  while (left.count > 0) {
    const jobs = await boss.fetch("bench", { batchSize: BATCH });
    if (jobs.length > 0) await boss.complete("bench", jobs.map((job) => job.id));
    left.count -= jobs.length;
  }
}

await serve({
  W3: async (count) => {
    const left = { count };
    const workers = Array.from({ length: WORKERS }, () => work(left));
    await many(count, PRODUCERS, () => boss.send("bench", {}));
    await Promise.all(workers);
  },
});
