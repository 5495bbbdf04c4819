// What the caller may do, as the server lists it, and why the rest is refused.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { send } from "@/api/client";
import type { SchemaOfferedAction } from "@/api/schema";
import { Button } from "@/ui/button";
import { ReasonDialog } from "@/ui/dialog";
import { Failure } from "@/ui/feedback";

const DANGER = new Set(["cancel", "void", "stop", "cannot-complete"]);
/** What needs more than a reason has a form of its own elsewhere. */
const BY_REASON = new Set(["reason"]);

export function Actions({ runId, step }: { runId: string; step?: string }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const base = `/v1/runs/${runId}${step ? `/steps/${encodeURIComponent(step)}` : ""}`;
  const offered = useQuery({
    queryKey: ["runs", runId, "actions", step],
    queryFn: () => send<SchemaOfferedAction[]>("GET", `${base}/actions`),
  });
  const [asked, setAsked] = useState<SchemaOfferedAction>();
  const act = useMutation({
    mutationFn: ({ action, reason }: { action: SchemaOfferedAction; reason?: string }) =>
      send("POST", `${base}/${action.action}`, {
        type: "application/json",
        text: JSON.stringify(reason ? { reason } : {}),
      }),
    onSuccess: () => {
      setAsked(undefined);
      void client.invalidateQueries({ queryKey: ["runs", runId] });
    },
  });
  if (offered.isError) return <Failure error={offered.error} />;
  const simple = (offered.data ?? []).filter((action) => action.needs.every((field) => BY_REASON.has(field)));
  const possible = simple.filter((action) => action.ok);
  const refused = simple.filter((action) => !action.ok);
  if (simple.length === 0) return null;
  return (
    <section aria-label={t("actions.title")} className="flex flex-col gap-2">
      <div className="flex flex-wrap gap-2">
        {possible.map((action) => (
          <Button
            key={`${action.command}:${action.action}`}
            look={DANGER.has(action.action) ? "danger" : "plain"}
            onClick={() => setAsked(action)}
          >
            {action.action.replaceAll("-", " ")}
          </Button>
        ))}
      </div>
      {refused.length > 0 && (
        <details className="text-xs text-soft">
          <summary className="cursor-pointer">{t("actions.refused", { count: refused.length })}</summary>
          <ul className="mt-1 flex flex-col gap-1">
            {refused.map((action) => (
              <li key={`${action.command}:${action.action}`}>
                <strong className="font-medium text-ink">{action.action.replaceAll("-", " ")}</strong>:{" "}
                {action.problems.map((problem) => problem.message).join("; ")}
              </li>
            ))}
          </ul>
        </details>
      )}
      {asked && (
        <ReasonDialog
          title={t("actions.confirm", { action: asked.action.replaceAll("-", " ") })}
          lead={t("actions.becomes", { state: asked.to_state.replaceAll("_", " ") })}
          needsReason={asked.needs.includes("reason")}
          danger={DANGER.has(asked.action)}
          confirm={asked.action.replaceAll("-", " ")}
          pending={act.isPending}
          error={act.error}
          onClose={() => setAsked(undefined)}
          onConfirm={(reason) => act.mutate({ action: asked, reason })}
        />
      )}
    </section>
  );
}
