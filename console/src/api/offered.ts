// What the server offers the viewer: on a process, on a run, or on a step of a run.
import { api, body } from "./client";
import type { SchemaOfferedAction } from "./schema";

export function offeredOn(
  kind: "runs" | "processes",
  id: string,
  step?: string,
): Promise<SchemaOfferedAction[]> {
  if (kind === "processes")
    return body(api.GET("/v1/processes/{instance_id}/actions", { params: { path: { instance_id: id } } }));
  if (step === undefined)
    return body(api.GET("/v1/runs/{run_id}/actions", { params: { path: { run_id: id } } }));
  return body(api.GET("/v1/runs/{run_id}/steps/{step}/actions", { params: { path: { run_id: id, step } } }));
}
