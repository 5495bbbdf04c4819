// Problems, a dead letter, and a proposal that one of two people has approved.
const HELD = `
kind: workflow
name: label-print
order: linear
steps:
  - {name: print, run: worker, queue: labels, idempotent: true, onFailure: hold, retryPolicy: {maxRetries: 1, initialDelay: 100ms, maxDelay: 100ms}}
  - {name: check, run: worker, queue: labels, idempotent: true}
timeout: 2d
`;

const refunds = (queue, extra = "") => `kind: workflow
name: refunds
order: dag
gate_spec:
  publish: {approvers: [safety_tran, finance_lead], quorum: {rule: m-of-n, m: 2}, scope: "refunds:publish"}
steps:
  - {name: assess, run: worker, queue: desk, idempotent: true}
  - {name: pay, run: worker, queue: ${queue}, idempotent: true, dependsOn: [assess]}
${extra}timeout: 30d
`;
const PROPOSED = refunds(
  "treasury",
  "  - {name: tell-customer, run: worker, queue: mail, idempotent: true, dependsOn: [assess]}\n",
);

/** [name of the picture, address, token of who looks]. The run that failed is one of those before. */
export async function furnishGovernance(server, { caller, person, publish }) {
  const admin = caller(server);
  const scopes = ["governance:read", "runs:read", "workflows:read", "audit:read", "proposals:write"];
  const governor = await person(server, "ops_lead", scopes, "Priya Nair");
  const finance = await person(server, "finance_lead", [], "Tomás Rey");
  await publish(server, HELD);
  const label = {
    definition: "label-print",
    subject_ref: "CT-118 wave 3",
    input: { packs: 1200, language: "vi" },
  };
  await admin("POST", "/v1/runs", label);
  for (const [verb, last_error] of [
    ["retry", "the printer does not answer"],
    ["dead", "the printer refused: no ribbon"],
  ]) {
    const asked = { worker_id: "w1", wait_ms: 10_000 };
    const { tasks } = await admin("POST", "/v1/queues/labels/claim", asked);
    const { task_id, lease_token } = tasks[0];
    await admin("POST", `/v1/tasks/${task_id}/${verb}`, { lease_token, last_error });
  }
  const [problem, letter] = [
    await first(admin, "/v1/governance/problems/failed_runs"),
    await first(admin, "/v1/dead-letters"),
  ];

  await publish(server, refunds("bank"));
  const proposer = caller(server, governor);
  const { proposal_id: id } = await proposer("POST", "/v1/proposals", {
    proposal_kind: "workflow",
    target: "refunds",
    base_version: 1,
    document: PROPOSED,
    affected: ["ticket-7"],
    reason: "Customers wait too long for an answer.",
  });
  for (const verb of ["submit", "review"]) await proposer("POST", `/v1/proposals/${id}/${verb}`, {});
  await proposer("POST", `/v1/proposals/${id}/comments`, { text: "The letter is checked by the lawyers." });
  await caller(server, finance)("POST", `/v1/processes/${id}/gates/approve/decision`, {
    decision: "approve",
    reason: "The treasury has agreed.",
  });
  return [
    ["governance", "/governance", governor],
    ["governance-problem", `/governance/problems/failed_runs?item=${problem.problem_id}`, governor],
    ["governance-timeline", `/governance/timeline?trace_id=${problem.trace_id}`, governor],
    ["dead-letters", "/governance/dead-letters", governor],
    ["dead-letter", `/governance/dead-letters/${letter.dead_letter_id}`, governor],
    ["proposals", "/proposals", governor],
    ["proposal", `/proposals/${id}`, governor],
    ["proposal-edit", `/proposals/${id}/edit`, governor],
  ];
}

/** A problem appears a moment after its cause. */
async function first(admin, path) {
  for (let tries = 0; tries < 100; tries++) {
    const { items } = await admin("GET", path);
    if (items.length > 0) return items[0];
    await new Promise((done) => setTimeout(done, 100));
  }
  throw new Error(`nothing appears at ${path}`);
}
