// absurd: tasks are claimed from a queue and checkpoint their steps. Driven by ../drive.py; the protocol stands in
// ../README.md. Idle workers poll: every POLL_S here, far below the default of 0.25 s, for the sake of W2, and only
// while there is work, so that polling is not counted afterwards.
import { execFileSync } from "node:child_process";
import pg from "pg";
import { Absurd } from "absurd-sdk";
import { many, oneByOne, serve } from "./protocol.mjs";

const STEPS = 10;
const CONCURRENCY = 32;
const PRODUCERS = 8;
const POLL_S = 0.002;

const url = process.argv[2];
const absurdctl = (...args) => execFileSync(process.env.PEER_BIN + "/absurdctl", [...args, "-d", url]);
absurdctl("init");
absurdctl("create-queue", "bench");

/** Knows when a task has ended: after its last commit. */
class Counting extends Absurd {
  ended = 0;
  goal = Infinity;

  async executeTask(...args) {
    await super.executeTask(...args);
    if (++this.ended === this.goal) this.reached();
  }

  /** Resolves when `count` more tasks have ended. */
  more(count) {
    this.goal = this.ended + count;
    return new Promise((resolve) => (this.reached = resolve));
  }
}

const app = new Counting({ db: new pg.Pool({ connectionString: url, max: CONCURRENCY + PRODUCERS }), queueName: "bench" });
app.registerTask({ name: "chain" }, async (_, ctx) => {
  for (let i = 0; i < STEPS; i++) await ctx.step("noop", async () => null);
});
app.registerTask({ name: "job" }, async () => null);

const working = (work) => async (count) => {
  const worker = await app.startWorker({ concurrency: CONCURRENCY, pollInterval: POLL_S });
  const answer = await work(count);
  await worker.close();
  return answer;
};
const produce = async (task, count) => {
  const ended = app.more(count);
  await many(count, PRODUCERS, () => app.spawn(task, {}));
  await ended;
};
await serve({
  W1: working((count) => produce("chain", count)),
  W2: working((count) => oneByOne(count, () => produce("chain", 1))),
  W3: working((count) => produce("job", count)),
});
