// Which decisions on a gate the server offers the viewer. The page does not work it out from who approves and who asked.
import { useQuery } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import { offeredOn } from "@/api/offered";
import type { SchemaGate, SchemaOfferedAction } from "@/api/schema";
import { type Choice, type Decidable, isOpen } from "./decide";

/** A decision that the server would accept: its name, its weight, and what the viewer has to give. */
export type Offer = Required<Pick<SchemaOfferedAction, "label_key" | "severity" | "needs">> & {
  choice: Choice;
};

export interface Offers {
  /** What is decided: in a quorum, the viewer's own approval step. */
  gate: Decidable;
  offers: Offer[];
  /** The approver in whose place the viewer decides, as their substitute. */
  onBehalfOf?: string;
  /** Why the server refuses the rest. */
  problems: string[];
}

/** An approval in the in-tray is its reader's to decide; the in-tray lists it for nobody else. */
const OF_IN_TRAY: Offer[] = [
  { choice: "approve", label_key: "action.approve.label", severity: "primary", needs: [] },
  { choice: "reject", label_key: "action.reject.label", severity: "danger", needs: ["reason"] },
];

const CHOICES: readonly Choice[] = ["approve", "reject", "withdraw"];

/** Gates on the run as a whole; all others are on the step that they name. */
const ON_RUN = ["cancel", "resume", "void"];

async function decisionsOn(kind: "runs" | "processes", instance: string, action: string) {
  const step = ON_RUN.includes(action) ? undefined : action.replace(/^(reopen|escalate):/, "");
  const all = await offeredOn(kind, instance, step);
  return all.filter((one) => one.command === "decide_gate" && one.gate === action);
}

/** `peers`: the gate, or all approval steps of its quorum. */
export function useOffers(
  kind: "runs" | "processes",
  instance: string,
  gate: SchemaGate,
  peers: SchemaGate[],
): Offers | undefined {
  const open = peers.some(isOpen);
  const offered = useQuery({
    queryKey: ["gate", gate.step_id, "offers"],
    enabled: open && gate.binding === "current",
    queryFn: () => decisionsOn(kind, instance, gate.action),
  });
  const waiting = useQuery({ queryKey: ["inbox", "all"], enabled: open, queryFn: inTray });
  // Who is the substitute of several approvers decides the step that is open.
  const mine =
    waiting.data?.find((one) => one.task_ref === gate.step_id) ??
    waiting.data?.find((one) => peers.some((peer) => peer.step_id === one.task_ref));
  if ((open && waiting.isLoading) || offered.isLoading) return;
  const accepted = (offered.data ?? []).filter((one) => one.ok);
  const offers = CHOICES.flatMap((choice): Offer[] => {
    const { label_key, severity, needs } = accepted.find((one) => one.action === choice) ?? {};
    if (label_key && severity && needs) return [{ choice, label_key, severity, needs }];
    // A gate that was opened anew leaves the approvals of the earlier one in the in-tray: they can still be decided.
    return mine ? OF_IN_TRAY.filter((one) => one.choice === choice) : [];
  });
  const said = (offered.data ?? []).flatMap((one) => one.problems.map((problem) => problem.message));
  return {
    gate: peers.find((peer) => peer.step_id === mine?.task_ref) ?? gate,
    offers,
    onBehalfOf: mine?.on_behalf_of ?? undefined,
    problems: [...new Set(said)],
  };
}

/** All that waits for the viewer. */
export const inTray = async () =>
  (await body(api.GET("/v1/inbox", { params: { query: { limit: 500 } } }))).items;
