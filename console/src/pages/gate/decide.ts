// A decision: with a passkey where the actor has one, else attested by the server.
import { api, body } from "@/api/client";
import type { SchemaDecideGate, SchemaGate, SchemaMe } from "@/api/schema";
import { signedHeaders } from "@/app/sign";

export type Choice = "approve" | "reject" | "withdraw";

export interface Recorded {
  choice: Choice;
  meaning: string;
  passkey: boolean;
}

export async function decide(ask: {
  kind: "runs" | "processes";
  instance: string;
  gate: Pick<SchemaGate, "action" | "step_id" | "request_digest">;
  choice: Choice;
  reason?: string;
  meaning: string;
  me?: SchemaMe;
}): Promise<Recorded> {
  const { kind, instance, gate, choice, reason, meaning, me } = ask;
  const decision: SchemaDecideGate = {
    decision: choice,
    reason,
    step_id: gate.step_id,
    request_digest: gate.request_digest,
  };
  const bytes = JSON.stringify(decision);
  const path = `/v1/${kind}/${instance}/gates/${encodeURIComponent(gate.action)}/decision`;
  const passkey = (me?.passkeys.length ?? 0) > 0;
  const headers =
    passkey && me
      ? await signedHeaders({
          me,
          action: kind === "runs" ? "decide_run_gate" : "decide_gate",
          path,
          instance,
          stepId: gate.step_id,
          bytes,
          meaning,
        })
      : {};
  const given = { body: decision, bodySerializer: () => bytes, headers };
  if (kind === "runs")
    await body(
      api.POST("/v1/runs/{run_id}/gates/{action}/decision", {
        params: { path: { run_id: instance, action: gate.action } },
        ...given,
      }),
    );
  else
    await body(
      api.POST("/v1/processes/{instance_id}/gates/{action}/decision", {
        params: { path: { instance_id: instance, action: gate.action } },
        ...given,
      }),
    );
  return { choice, meaning, passkey };
}
