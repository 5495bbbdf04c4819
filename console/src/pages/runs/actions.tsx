// What the caller may do, as the server lists it, and why the rest is refused.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { act } from "@/api/client";
import { offeredOn } from "@/api/offered";
import type { SchemaGate, SchemaOfferedAction } from "@/api/schema";
import { useTranslation } from "@/app/i18n";
import { Button } from "@/ui/button";
import { ReasonDialog } from "@/ui/dialog";
import { Failure } from "@/ui/feedback";
import { Said } from "@/ui/markdown";
import { plain, useTexts } from "@/ui/texts";
import { isOpen } from "../gate/decide";
import { type Given, given, Needs } from "./needs";

const ORDER = ["primary", "plain", "danger"] as const;

/** The name of an action in the page's language, as the registry has it. */
export function useActionName(): (action: SchemaOfferedAction) => string {
  const says = useTexts();
  return (action) => says(action.label_key ?? action.action, action.args);
}

/** What the server offers the viewer on a run, or on a step of it. */
export function useOffered(runId: string, step: string | undefined, sequence: number) {
  return useQuery({
    queryKey: ["runs", runId, "actions", step, sequence],
    queryFn: () => offeredOn("runs", runId, step),
    placeholderData: (before) => before,
  });
}

const addressOf = (runId: string, step?: string) =>
  `/v1/runs/${runId}${step ? `/steps/${encodeURIComponent(step)}` : ""}`;

/** The gate that waits for the viewer's decision. */
export function waitingFor(offered: SchemaOfferedAction[], gates: SchemaGate[]): SchemaGate | undefined {
  const decisions = offered.filter((one) => one.command === "decide_gate" && one.ok);
  return gates.find((gate) => isOpen(gate) && gate.action === decisions[0]?.gate);
}

export function Actions({
  runId,
  step,
  gates,
  sequence,
  decides = true,
}: {
  runId: string;
  step?: string;
  /** Approvals that an action may spend. */
  gates: SchemaGate[];
  sequence: number;
  /** Leads to the decision that waits; not where the page has it already. */
  decides?: boolean;
}) {
  const { t } = useTranslation();
  const says = useTexts();
  const name = useActionName();
  const client = useQueryClient();
  const base = addressOf(runId, step);
  const offered = useOffered(runId, step, sequence);
  const [asked, setAsked] = useState<SchemaOfferedAction>();
  const [typed, setTyped] = useState<Given>({});
  const acting = useMutation({
    mutationFn: ({ action, reason }: { action: SchemaOfferedAction; reason?: string }) => {
      const body = { ...given(action, typed), ...(reason ? { reason } : {}) };
      return act(
        action.command === "open_gate" ? `/v1/runs/${runId}/gates` : `${base}/${action.action}`,
        body,
      );
    },
    onSuccess: () => {
      setAsked(undefined);
      void client.invalidateQueries({ queryKey: ["runs", runId] });
    },
  });
  const ask = (action: SchemaOfferedAction) => {
    acting.reset();
    setTyped({});
    setAsked(action);
  };
  if (offered.isError) return <Failure error={offered.error} />;
  // Decisions are taken on the gate's page, where what is decided is shown.
  const all = (offered.data ?? []).filter((action) => action.command !== "decide_gate");
  const waiting = decides ? waitingFor(offered.data ?? [], gates) : undefined;
  const possible = all
    .filter((action) => action.ok)
    .sort((a, b) => ORDER.indexOf(a.severity ?? "plain") - ORDER.indexOf(b.severity ?? "plain"));
  const refused = all.filter((action) => !action.ok);
  if (all.length === 0 && !waiting) return null;
  const key = (action: SchemaOfferedAction) =>
    `${action.command}:${action.action}:${action.gate ?? ""}:${action.to_state}`;
  return (
    <section aria-label={t("actions.title")} data-key="." className="flex flex-col gap-2">
      <div className="flex flex-wrap gap-2">
        {waiting && (
          <Link
            to="/gate/$step"
            params={{ step: waiting.step_id }}
            className="inline-flex min-h-9 items-center rounded-md border border-accent bg-accent px-3.5 text-sm font-medium text-on-accent"
          >
            {t("actions.decide", { action: plain(waiting.action) })}
          </Link>
        )}
        {possible.map((action) => (
          <Button key={key(action)} look={action.severity} onClick={() => ask(action)}>
            {name(action)}
          </Button>
        ))}
      </div>
      {refused.length > 0 && (
        <details className="text-xs text-soft">
          <summary className="w-fit cursor-pointer">
            {t("actions.refused", { count: refused.length })}
          </summary>
          <dl className="mt-2 grid grid-cols-[max-content_1fr] gap-x-4 gap-y-1.5">
            {refused.map((action) => (
              <div key={key(action)} className="contents">
                <dt className="font-medium text-ink">{name(action)}</dt>
                <dd className="[overflow-wrap:anywhere]">
                  <Said text={action.problems.map((problem) => problem.message).join("; ")} />
                </dd>
              </div>
            ))}
          </dl>
        </details>
      )}
      {asked && (
        <ReasonDialog
          title={t("actions.confirm", { action: name(asked), what: step ?? "" })}
          lead={t("actions.becomes", { state: stateWords(asked.to_state, says, step) })}
          needsReason={asked.needs.includes("reason")}
          danger={asked.severity === "danger"}
          confirm={name(asked)}
          pending={acting.isPending}
          error={acting.error}
          onClose={() => setAsked(undefined)}
          onConfirm={(reason) => acting.mutate({ action: asked, reason })}
        >
          <Needs action={asked} value={typed} onChange={setTyped} />
        </ReasonDialog>
      )}
    </section>
  );
}

/** What the state afterwards is called. */
const stateWords = (state: string, says: ReturnType<typeof useTexts>, step: string | undefined) =>
  says(step ? `state.${state}.label` : `run.${state}.label`);
