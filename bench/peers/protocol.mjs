// What the programs in JavaScript share: their side of the protocol of README.md. run.sh copies it beside each.
import { createInterface } from "node:readline";

/** Answers every work with what `works` has for it. */
export async function serve(works) {
  console.log("ready");
  for await (const line of createInterface({ input: process.stdin })) {
    const [work, count, ...rest] = line.split(" ");
    console.log(JSON.stringify((await works[work](Number(count), rest.join(" "))) ?? []));
  }
  process.exit(0);
}

/** Calls `run` `count` times, `concurrency` at a time. */
export async function many(count, concurrency, run) {
  let begun = 0;
  const loop = async () => {
    while (begun++ < count) await run();
  };
  await Promise.all(Array.from({ length: Math.min(concurrency, count) }, loop));
}

/** Calls `run` `count` times, one after the other; the milliseconds of each. */
export async function oneByOne(count, run) {
  const milliseconds = [];
  for (let i = 0; i < count; i++) {
    const begin = performance.now();
    await run();
    milliseconds.push(performance.now() - begin);
  }
  return milliseconds;
}
