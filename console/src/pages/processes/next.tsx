// What can happen next, by whom, and why the rest is refused.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { api, body } from "@/api/client";
import type { SchemaOfferedAction } from "@/api/schema";
import { Button } from "@/ui/button";
import { ReasonDialog } from "@/ui/dialog";
import { Failure } from "@/ui/feedback";

export function NextActions({ id, sequence }: { id: string; sequence: number }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const [asked, setAsked] = useState<SchemaOfferedAction>();
  const query = useQuery({
    queryKey: ["processes", id, "actions", sequence],
    queryFn: () =>
      body(api.GET("/v1/processes/{instance_id}/actions", { params: { path: { instance_id: id } } })),
    placeholderData: (before) => before,
  });
  const act = useMutation({
    mutationFn: async ({ action, reason }: { action: SchemaOfferedAction; reason?: string }) => {
      const path = { instance_id: id };
      if (action.command === "open_gate")
        await body(
          api.POST("/v1/processes/{instance_id}/gates", {
            params: { path },
            body: { action: action.gate ?? action.action, reason },
          }),
        );
      else
        await body(
          api.POST("/v1/processes/{instance_id}/transitions", {
            params: { path },
            body: { action: action.action, reason },
          }),
        );
    },
    onSuccess: () => {
      setAsked(undefined);
      void client.invalidateQueries({ queryKey: ["processes", id] });
    },
  });
  // Decisions are taken on the gate's own page, where what is decided is shown.
  const offered = (query.data ?? []).filter((action) => action.command !== "decide_gate");
  if (query.isError) return <Failure error={query.error} />;
  if (offered.length === 0) return null;
  return (
    <section className="mt-6">
      <h2 className="mb-2">{t("process.next")}</h2>
      <ul className="flex flex-col gap-2">
        {offered.map((action) => (
          <li
            key={`${action.command}:${action.action}:${action.gate ?? ""}`}
            className="flex flex-wrap items-center gap-3 text-sm"
          >
            <Button disabled={!action.ok} onClick={() => setAsked(action)}>
              {action.command === "open_gate"
                ? t("process.ask", { action: action.gate ?? action.action })
                : action.action}
            </Button>
            <span className="text-soft">→ {action.to_state}</span>
            {!action.ok && (
              <span className="text-soft">
                {action.problems.map((problem) => problem.message).join("; ")}
              </span>
            )}
          </li>
        ))}
      </ul>
      {asked && (
        <ReasonDialog
          title={
            asked.command === "open_gate"
              ? t("process.ask", { action: asked.gate ?? asked.action })
              : asked.action
          }
          lead={t("actions.becomes", { state: asked.to_state })}
          needsReason={asked.needs.includes("reason")}
          confirm={t("process.confirm")}
          pending={act.isPending}
          error={act.error}
          onClose={() => setAsked(undefined)}
          onConfirm={(reason) => act.mutate({ action: asked, reason })}
        />
      )}
    </section>
  );
}
