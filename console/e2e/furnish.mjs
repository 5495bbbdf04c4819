// Processes and runs that look like a working day, for pictures and for trying pages by hand.
import { readFileSync } from "node:fs";
import { furnishRuns } from "./furnish-runs.mjs";

const definition = (name) => readFileSync(new URL(`../../definitions/${name}.yaml`, import.meta.url), "utf8");

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
  const { supply, nightly, long, runbook } = await furnishRuns(server, { caller, person, publish }, operator);
  return [
    ["in-tray", "/inbox", santos],
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
    ["definition-process", "/definitions/batch-release", operator],
    ["definition-start", "/definitions/clinical-supply?tab=start", operator],
    ["editor", "/definitions/new?from=clinical-supply", operator],
    ["ledger", "/ledger", operator],
    ["verify", "/verify", operator],
    ["admin", "/admin", operator],
  ];
}
