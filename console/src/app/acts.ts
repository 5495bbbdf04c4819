// What statements call the requests that change something (spec/record.md, section 5.2).

/** What is done to a step, by the last part of its address. */
const STEP: Record<string, string> = {
  claim: "claim_step",
  release: "release_step",
  wait: "wait_step",
  block: "block_step",
  unblock: "unblock_step",
  "re-engage": "reengage_step",
  complete: "complete_step",
  "cannot-complete": "cannot_complete_step",
  escalate: "escalate_step",
  retry: "retry_step",
  "block-escalate": "escalate_block",
  reopen: "reopen_step",
  "extend-deadline": "extend_deadline",
  transition: "transition_step",
  "declare-effect": "declare_effect",
};

const TASK = ["complete", "wait", "retry", "dead"];

/** Addresses behind `/v1/`, `*` for any part. */
const ACTS: Record<string, string> = {
  processes: "start_workflow",
  "processes/*/gates": "open_gate",
  "processes/*/gates/*/decision": "decide_gate",
  "processes/*/transitions": "fire_transition",
  runs: "start_run",
  "runs/trigger": "dispatch_run",
  "runs/*/gates": "open_gate",
  "runs/*/gates/*/decision": "decide_gate",
  "runs/*/cancel": "cancel_run",
  "runs/*/pause": "pause_run",
  "runs/*/resume": "resume_run",
  "runs/*/stop": "stop_run",
  "runs/*/void": "void_run",
  events: "receive_event",
  "queues/*/claim": "claim",
  actors: "register_actor",
  "actors/*/keys": "register_key",
  "me/passkeys": "register_key",
  "actors/*/keys/*/revoke": "revoke_key",
  "actors/*/tokens": "issue_credential",
  "actors/*/tokens/*/revoke": "revoke_credential",
  grants: "grant",
  "grants/*/revoke": "revoke",
  definitions: "publish_definition",
  "definitions/*/retire": "retire_definition",
  "schedules/*/pause": "pause_schedule",
  "schedules/*/resume": "resume_schedule",
  "schedules/*/trigger": "start_run",
  "ledger/holds": "place_hold",
  "ledger/holds/*/release": "release_hold",
  "ledger/records/*/purge": "purge_record",
};

export interface Act {
  /** As the statement names it. */
  action: string;
  /** The process or run that it is about. */
  instance: string | null;
}

/** The act that a POST to this address is; undefined where it leaves no record. */
export function actOf(path: string): Act | undefined {
  const parts = path.split("/").slice(2);
  const [kind, id, third, , last] = parts;
  const about = kind === "processes" || kind === "runs" ? (id ?? null) : null;
  if (kind === "runs" && third === "steps" && parts.length === 5) {
    const action = STEP[last ?? ""];
    return action ? { action, instance: about } : undefined;
  }
  if (kind === "tasks" && parts.length === 3 && TASK.includes(third ?? "")) {
    return { action: third ?? "", instance: id?.slice(0, id.lastIndexOf(".")) ?? null };
  }
  const fits = (pattern: string) => {
    const wanted = pattern.split("/");
    return wanted.length === parts.length && wanted.every((part, at) => part === "*" || part === parts[at]);
  };
  // A fixed address comes before one with any part in its place.
  const action = ACTS[parts.join("/")] ?? Object.entries(ACTS).find(([pattern]) => fits(pattern))?.[1];
  if (!action) return undefined;
  return { action, instance: parts.length > 2 ? about : null };
}
