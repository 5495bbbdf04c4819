// A workflow of 500 steps and at least 700 edges, in four groups.
import assert from "node:assert/strict";

export const PHASES = ["design", "build", "qualify", "release"];

export function longWorkflow() {
  let edges = 0;
  const steps = Array.from({ length: 500 }, (_, at) => {
    const before = at === 0 ? [] : [Math.floor((at * 3) / 4)];
    if (edges + before.length < 700 - (499 - at) && at > 1) {
      const second = Math.floor(at / 2);
      if (second !== before[0] && second !== at) before.push(second);
    }
    edges += before.length;
    const group = PHASES[Math.floor(at / 125)];
    return `  - {name: S${at}, run: worker, queue: long, idempotent: true, category: ${group}, dependsOn: [${before.map((one) => `S${one}`).join(", ")}]}`;
  });
  assert.ok(edges >= 700, `${edges} edges`);
  return `kind: workflow\nname: long\norder: dag\nsteps:\n${steps.join("\n")}\n`;
}
