// Processes and runs that look like a working day, for pictures and for trying pages by hand.
import { readFileSync } from "node:fs";

const definition = (name) => readFileSync(new URL(`../../definitions/${name}.yaml`, import.meta.url), "utf8");

const LONG = `
kind: workflow
name: site-qualification
order: dag
steps:
${Array.from({ length: 120 }, (_, at) => {
  const before = at === 0 ? [] : [Math.floor((at * 3) / 4)];
  return `  - {name: check-${at + 1}, run: worker, queue: site, idempotent: true, dependsOn: [${before.map((one) => `check-${one + 1}`).join(", ")}]}`;
}).join("\n")}
`;

/** [name of the picture, address, token of who looks]. */
export async function furnish(server, { caller, person, publish }) {
  const santos = await person(server, "qp_director_santos", ["workflows:read"], "Maria Santos");
  const operator = await person(
    server,
    "operator_chen",
    [
      "workflows:start",
      "workflows:open-gate",
      "workflows:fire",
      "workflows:read",
      "runs:read",
      "runs:start",
      "runs:control",
      "definitions:publish",
      "audit:read",
      "actors:manage",
      "permissions:manage",
    ],
    "Li Chen",
  );
  const worker = caller(server, await person(server, "warehouse", ["tasks:work"]));
  await publish(server, definition("batch-release"));
  await publish(server, LONG);
  const chen = caller(server, operator);
  let process = "";
  for (const batch of ["br-2026-0412", "br-2026-0413", "br-2026-0414"]) {
    const { instance_id } = await chen("POST", "/v1/processes", {
      definition: "batch-release",
      subject_ref: batch,
    });
    for (const action of ["begin-testing", "complete-tests"])
      await chen("POST", `/v1/processes/${instance_id}/transitions`, { action });
    await chen("POST", `/v1/processes/${instance_id}/gates`, {
      action: "release",
      reason: "all tests passed",
    });
    process = instance_id;
  }
  const { run_id: run } = await chen("POST", "/v1/runs", {
    definition: "site-qualification",
    subject_ref: "site-hanoi-2",
    input: {},
  });
  for (let round = 0; round < 40; round++) {
    const { tasks } = await worker("POST", "/v1/queues/site/claim", {
      worker_id: "w1",
      max: 4,
      lease_ms: 600000,
    });
    for (const [at, task] of tasks.entries()) {
      const report = { lease_token: task.lease_token };
      if (round > 12 && at > 0) continue;
      if (round === 12 && at === 0)
        await worker("POST", `/v1/tasks/${task.task_id}/retry`, {
          ...report,
          last_error: "sensor 4 does not answer",
        });
      else await worker("POST", `/v1/tasks/${task.task_id}/complete`, { ...report, output: { ok: true } });
    }
    if (tasks.length === 0 || round > 14) break;
  }
  return [
    ["in-tray", "/inbox", santos],
    ["processes", "/processes", operator],
    ["process", `/processes/${process}`, operator],
    ["runs", "/runs", operator],
    ["run", `/runs/${run}`, operator],
    ["run-list", `/runs/${run}?tab=outline`, operator],
    ["run-timeline", `/runs/${run}?tab=timeline`, operator],
    ["definitions", "/definitions", operator],
    ["definition", "/definitions/batch-release", operator],
    ["editor", "/definitions/new?from=batch-release", operator],
    ["ledger", "/ledger", operator],
    ["verify", "/verify", operator],
    ["admin", "/admin", operator],
  ];
}
