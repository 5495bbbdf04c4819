// Runs that look like a working day: some fine, some waiting, some failed, a runbook that drifted.
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const definition = (name) => readFileSync(new URL(`../../definitions/${name}.yaml`, import.meta.url), "utf8");

const MACHINES = [
  "filler",
  "capper",
  "labeller",
  "autoclave",
  "freeze-dryer",
  "inspection",
  "cartoner",
  "palletiser",
];
const PHASES = [
  ["design", ["requirements", "drawings", "risk"]],
  ["installation", ["wiring", "utilities", "calibration", "IQ-report"]],
  ["operation", ["alarms", "speed", "OQ-report"]],
  ["performance", ["three-batches", "cleaning", "PQ-report"]],
];

/** The qualification of a filling line: 8 machines, 13 steps each, and a release at the end. */
export function qualification(withCategory) {
  const steps = [
    `  - {name: plan, run: worker, queue: qa, idempotent: true${withCategory ? ", category: design" : ""}}`,
  ];
  const last = [];
  for (const machine of MACHINES) {
    let before = "plan";
    for (const [phase, parts] of PHASES)
      for (const part of parts) {
        const name = `${machine}-${part}`;
        const group = withCategory ? `, category: ${phase}` : "";
        steps.push(
          `  - {name: ${name}, run: worker, queue: ${part.endsWith("report") ? "qa" : "line"}, idempotent: true, retryPolicy: {maxRetries: 2, initialDelay: 1h, maxDelay: 1h}, dependsOn: [${before}]${group}}`,
        );
        before = name;
      }
    last.push(before);
  }
  steps.push(
    `  - {name: release-line, run: worker, queue: qa, idempotent: true, gate: qa-head, dependsOn: [${last.join(", ")}]}`,
  );
  return `kind: workflow\nname: line-qualification\norder: dag\ngate_spec:\n  qa-head: {approver_ref: qp_director_santos, scope: "line:release"}\nsteps:\n${steps.join("\n")}\n`;
}

const SUPPLY = `
kind: workflow
name: clinical-supply
order: dag
inputSchema:
  type: object
  required: [study, packs]
  properties:
    study: {type: string, description: "The study's number, for example CT-118."}
    packs: {type: integer}
    blinded: {type: boolean}
    route: {enum: [air, road]}
gate_spec:
  qp: {approver_ref: qp_director_santos, scope: "supply:release"}
steps:
  - {name: forecast, run: worker, queue: planning, idempotent: true}
  - {name: book-line, run: human, pic: operator_chen, dependsOn: [forecast], deadline: 2d}
  - {name: print-labels, run: worker, queue: line, idempotent: true, dependsOn: [forecast]}
  - {name: order-coolers, run: worker, queue: line, idempotent: true, when: "\${input.route == 'air'}", dependsOn: [forecast]}
  - {name: pack, run: worker, queue: line, idempotent: true, dependsOn: [book-line, print-labels, order-coolers]}
  - {name: ship, run: worker, queue: line, idempotent: true, gate: qp, dependsOn: [pack]}
`;

export async function furnishRuns(server, { caller, person, publish }, operator) {
  const chen = caller(server, operator);
  const worker = caller(server, await person(server, "line_controller", ["tasks:work"], "Line controller"));
  for (const name of ["order-process", "nightly-report", "capa", "db-migrate"])
    await publish(server, definition(name));
  await publish(server, SUPPLY);
  await publish(server, qualification(true)).catch(() => publish(server, qualification(false)));
  const start = async (name, subject, input) =>
    (await chen("POST", "/v1/runs", { definition: name, subject_ref: subject, input })).run_id;
  const claim = async (queue, max = 1) =>
    (await worker("POST", `/v1/queues/${queue}/claim`, { worker_id: "w1", max, lease_ms: 600000 })).tasks;
  const complete = (task, output = {}) =>
    worker("POST", `/v1/tasks/${task.task_id}/complete`, { lease_token: task.lease_token, output });
  const retry = (task, error) =>
    worker("POST", `/v1/tasks/${task.task_id}/retry`, { lease_token: task.lease_token, last_error: error });

  for (const [at, order] of ["A-20931", "A-20932", "A-20933", "A-20934"].entries()) {
    await start("order-process", order, { order_id: order });
    const [task] = await claim("orders");
    if (at === 2)
      await worker("POST", `/v1/tasks/${task.task_id}/dead`, {
        lease_token: task.lease_token,
        last_error: "the customer's address has no postcode",
      });
    else await complete(task, { valid: true });
  }
  await start("capa", "deviation 26-114", {
    finding: "Temperature above 8 °C for 40 minutes",
    investigator: "operator_chen",
    owner: "operator_chen",
  });
  const supply = await start("clinical-supply", "CT-118 wave 3", {
    study: "CT-118",
    packs: 1200,
    blinded: true,
    route: "road",
  });
  for (const queue of ["planning", "line"]) for (const task of await claim(queue, 4)) await complete(task);
  const nightly = await start("nightly-report", "2026-11-16", { weekly: true });
  // Runs of this definition are dispatched one at a time, a moment after they started.
  await until(server, caller, nightly, (run) => run.state === "executing");
  for (let round = 0; round < 6; round++)
    for (const task of await claim("reports", 4))
      await complete(task, { at: "2026-11-16", count: 118, url: "https://reports/2026-11-16" });

  const long = await start("line-qualification", "filling line 2, Hanoi", {});
  let failed = false;
  for (let round = 0; round < 9; round++)
    for (const queue of ["qa", "line"])
      for (const [at, task] of (await claim(queue, 8)).entries()) {
        if (round > 4 && at % 3 === 1) continue;
        if (round === 5 && !failed) {
          failed = true;
          await retry(task, "sensor 4 does not answer");
        } else await complete(task, { ok: true });
      }
  const runbook = await drifted(server, { caller, person }, start);
  return { supply, nightly, long, runbook };
}

/** A database migration that stops because the schema has changed under it. */
export async function drifted(server, { caller, person }, start) {
  const owner = caller(server, await person(server, "owner", ["runs:read"], "Olu Adeyemi"));
  const lead = await person(server, "dba_lead", ["runs:read"], "Dana Brandt");
  const db = join(server.data, "shop.db");
  const sql = (text) => {
    const { status, stderr } = spawnSync("python3", [
      "-c",
      "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.executescript(sys.argv[2])",
      db,
      text,
    ]);
    if (status !== 0) throw new Error(String(stderr));
  };
  sql(
    "CREATE TABLE orders (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL); INSERT INTO orders (cents) VALUES (100), (250)",
  );
  const id = await start("db-migrate", "shop.db", { db });
  await until(server, caller, id, (run) =>
    run.gates.some((gate) => gate.action === "migrate" && gate.state === "Pending"),
  );
  await owner("POST", `/v1/runs/${id}/gates/migrate/decision`, { decision: "approve", reason: "agreed" });
  sql("CREATE INDEX by_cents ON orders (cents)");
  await caller(server, lead)("POST", `/v1/runs/${id}/gates/migrate/decision`, {
    decision: "approve",
    reason: "agreed",
  });
  await until(server, caller, id, (run) => run.state === "stopped");
  return { id, lead, owner };
}

/** Waits until the run is as wanted. */
export async function until(server, caller, id, wanted) {
  for (let tries = 0; tries < 300; tries++) {
    const run = await caller(server)("GET", `/v1/runs/${id}`);
    if (wanted(run)) return run;
    await new Promise((done) => setTimeout(done, 100));
  }
  throw new Error(`run ${id} did not come to what was waited for`);
}
