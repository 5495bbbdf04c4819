// A decision: with a passkey where the actor has one, else attested by the server.

import { api, body } from "@/api/client";
import type { SchemaDecideGate, SchemaGate, SchemaGateDecided, SchemaMe } from "@/api/schema";
import type { Translate } from "@/app/i18n";
import { signed } from "@/app/sign";

export type Choice = "approve" | "reject" | "withdraw";

/** What of a gate a decision needs. */
export type Decidable = Pick<SchemaGate, "action" | "step_id" | "request_digest" | "chain">;

/** It waits for a decision. An approver of a quorum that has its outcome is not waited for. */
export const isOpen = (gate: SchemaGate) =>
  gate.state === "Pending" && (gate.chain?.state ?? "Pending") === "Pending";

/** What the signature means, in the reader's language: shown before, signed, and shown after (21 CFR 11.50). */
export function meaningOf(
  t: Translate,
  choice: Choice,
  about: { action: string; subject: string; actor: string; onBehalfOf?: string },
): string {
  const { action, subject, actor, onBehalfOf } = about;
  // A substitute decides; a request is withdrawn by who made it.
  const decides = choice !== "withdraw" && onBehalfOf;
  const who = decides ? t("gate.asSubstitute", { who: actor, of: onBehalfOf }) : actor;
  return t(`gate.meaning.${choice}`, { action, subject, who });
}

/** What was signed. */
export interface Recorded {
  choice: Choice;
  /** What the signature means, as it was shown before. */
  meaning: string;
  reason?: string;
  instance: string;
  step: string;
  actor: string;
  /** SHA-256 of what the passkey signed; absent where the server attests. */
  digest?: string;
  /** The record that holds the decision, as the server answered. */
  record: Pick<SchemaGateDecided, "event_id" | "sequence" | "record_hash" | "assurance">;
}

export async function decide(ask: {
  kind: "runs" | "processes";
  instance: string;
  gate: Decidable;
  choice: Choice;
  reason?: string;
  meaning: string;
  me: SchemaMe;
}): Promise<Recorded> {
  const { kind, instance, gate, choice, reason, meaning, me } = ask;
  // Withdrawing a quorum withdraws all of it, not one approver's step.
  const stepId = choice === "withdraw" && gate.chain ? null : gate.step_id;
  const decision: SchemaDecideGate = {
    decision: choice,
    reason,
    step_id: stepId ?? undefined,
    request_digest: gate.request_digest,
  };
  const bytes = JSON.stringify(decision);
  const path = `/v1/${kind}/${instance}/gates/${encodeURIComponent(gate.action)}/decision`;
  const { headers, digest } = await signed({ me, path, stepId, bytes, meaning });
  const given = { body: decision, bodySerializer: () => bytes, headers };
  const record =
    kind === "runs"
      ? await body(
          api.POST("/v1/runs/{run_id}/gates/{action}/decision", {
            params: { path: { run_id: instance, action: gate.action } },
            ...given,
          }),
        )
      : await body(
          api.POST("/v1/processes/{instance_id}/gates/{action}/decision", {
            params: { path: { instance_id: instance, action: gate.action } },
            ...given,
          }),
        );
  return { choice, meaning, reason, instance, step: gate.step_id, actor: me.actor_ref, digest, record };
}
