// Processes and runs that look like a working day, for pictures and for trying pages by hand.
import { readFileSync } from "node:fs";
import { furnishGovernance } from "./furnish-governance.mjs";
import { furnishRuns } from "./furnish-runs.mjs";

const definition = (name) => readFileSync(new URL(`../../definitions/${name}.yaml`, import.meta.url), "utf8");

const RECALL = `
kind: process
name: recall
states: [reported, assessed, recalled, closed]
initial_state: reported
terminal_states: [recalled, closed]
transitions:
  - {from: reported, action: assess, to: assessed}
  - {from: assessed, action: recall, to: recalled, guard: board}
  - {from: assessed, action: close, to: closed}
gate_spec:
  board: {approvers: [qp_director_santos, qa_head_meyer, safety_tran], quorum: {rule: m-of-n, m: 2}, scope: "batch:recall", due: 4h}
`;

const DELIVERY = `
kind: workflow
name: delivery
order: dag
steps:
  - {name: order, run: worker, queue: dock, idempotent: true}
  - {name: qualify, run: workflow, workflow: clinical-supply, dependsOn: [order]}
  - {name: invoice, run: worker, queue: dock, idempotent: true, dependsOn: [order]}
  - {name: hand-over, run: worker, queue: dock, idempotent: true, dependsOn: [qualify, invoice]}
`;

const HANDOVER = `
kind: workflow
name: handover
order: linear
gate_spec:
  qp: {approver_ref: qp_director_santos, scope: "handover:dispatch", due: 8h}
steps:
  - {name: count, run: worker, queue: counting, idempotent: true}
  - {name: seal, run: worker, queue: counting, idempotent: true}
  - {name: dispatch, run: worker, queue: counting, idempotent: true, gate: qp, request: {pallets: "\${input.pallets}"}}
`;

/** A run that waits for its gate. Gives the gate's step. */
async function handover(server, { caller, publish }, chen) {
  await publish(server, HANDOVER);
  const worker = caller(server);
  const input = { pallets: 14 };
  const start = { definition: "handover", subject_ref: "truck 7", input };
  const { run_id } = await chen("POST", "/v1/runs", start);
  for (let step = 0; step < 2; step++) {
    const { tasks } = await worker("POST", "/v1/queues/counting/claim", { worker_id: "w1", lease_ms: 60000 });
    for (const { task_id, lease_token } of tasks)
      await worker("POST", `/v1/tasks/${task_id}/complete`, { lease_token, output: {} });
  }
  const { gates } = await chen("GET", `/v1/runs/${run_id}`);
  return gates[0].step_id;
}

/** A batch that two of three people have to recall, one of whom has decided. Gives the second one's step and token. */
async function recall(server, { caller, person, publish }, chen, santos) {
  const meyer = await person(server, "qa_head_meyer", ["workflows:read"], "Jonas Meyer");
  await person(server, "safety_tran", [], "Trần Thị Mai");
  await publish(server, RECALL);
  const start = { definition: "recall", subject_ref: "br-2026-0390" };
  const { instance_id } = await chen("POST", "/v1/processes", start);
  await chen("POST", `/v1/processes/${instance_id}/transitions`, { action: "assess" });
  await chen("POST", `/v1/processes/${instance_id}/gates`, {
    action: "recall",
    reason: "Glass particles in 2 of 80 vials; the supplier confirms a defect of the tubing.",
    request: { vials_inspected: 80, vials_affected: 2, markets: ["VN", "SG", "MY"], units_shipped: 14200 },
  });
  await caller(server, santos)("POST", `/v1/processes/${instance_id}/gates/recall/decision`, {
    decision: "approve",
    reason: "Patients first: recall now, investigate in parallel.",
  });
  const { gates } = await chen("GET", `/v1/processes/${instance_id}`);
  return { step: gates.find((gate) => gate.approver_ref === "qa_head_meyer").step_id, meyer };
}

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
  await publish(server, definition("batch-release"));
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
  const { step, meyer } = await recall(server, { caller, person, publish }, chen, santos);
  const { supply, nightly, long, runbook } = await furnishRuns(server, { caller, person, publish }, operator);
  await publish(
    server,
    DELIVERY.replace("hand-over, run: worker, queue: dock", "hand-over, run: worker, queue: yard"),
  );
  await publish(server, DELIVERY);
  const governance = await furnishGovernance(server, { caller, person, publish });
  const runGate = await handover(server, { caller, person, publish }, chen);
  return [
    ["in-tray", "/inbox", santos],
    ["gate", `/gate/${step}`, meyer],
    ["processes", "/processes", operator],
    ["process", `/processes/${process}`, operator],
    ["my-work", "/work", operator],
    ["runs", "/runs", operator],
    ["run", `/runs/${supply}`, operator],
    ["run-long", `/runs/${long}`, operator],
    ["run-lanes", `/runs/${long}?lanes=run&critical=true`, operator],
    ["run-step", `/runs/${long}?step=filler-calibration`, operator],
    ["run-list", `/runs/${long}?tab=outline`, operator],
    ["run-timeline", `/runs/${nightly}?tab=timeline`, operator],
    ["run-data", `/runs/${nightly}?tab=data`, operator],
    ["run-records", `/runs/${nightly}?tab=records`, operator],
    ["runbook", `/runs/${runbook.id}`, runbook.lead],
    ["definitions", "/definitions", operator],
    ["definition", "/definitions/clinical-supply", operator],
    ["definition-expanded", "/definitions/delivery?expanded=1", operator],
    ["definition-process", "/definitions/batch-release", operator],
    ["definition-diff", "/definitions/delivery?tab=diff", operator],
    ["definition-source", "/definitions/delivery?tab=source", operator],
    ["run-gate", `/gate/${runGate}`, santos],
    ["definition-start", "/definitions/clinical-supply?tab=start", operator],
    ["editor", "/definitions/new?from=clinical-supply", operator],
    ...governance,
    ["ledger", "/ledger", operator],
    ["verify", "/verify", operator],
    ["admin", "/admin", operator],
    ["admin-actors", "/admin?tab=actors", operator],
    ["admin-actor", "/admin?tab=actors&subject_ref=qa_head_meyer", operator],
    ["admin-grants", "/admin?tab=grants", operator],
    ["schedules", "/admin?tab=schedules", operator],
    ["explain", "/explain/gate-not-cleared", operator],
    ["nothing-here", "/no/such/page", operator],
  ];
}
