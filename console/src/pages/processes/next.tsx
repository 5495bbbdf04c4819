// What can happen next, by whom, and why the rest is refused.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, body } from "@/api/client";
import { offeredOn } from "@/api/offered";
import type { SchemaOfferedAction } from "@/api/schema";
import { useTranslation } from "@/app/i18n";
import { Button } from "@/ui/button";
import { ReasonDialog } from "@/ui/dialog";
import { Failure } from "@/ui/feedback";
import { Said } from "@/ui/markdown";
import { plain } from "@/ui/texts";
import { useActionName } from "../runs/actions";

export function NextActions({ id, sequence }: { id: string; sequence: number }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const [asked, setAsked] = useState<SchemaOfferedAction>();
  const query = useQuery({
    queryKey: ["processes", id, "actions", sequence],
    queryFn: () => offeredOn("processes", id),
    placeholderData: (before) => before,
  });
  const act = useMutation({
    mutationFn: async ({ action, reason }: { action: SchemaOfferedAction; reason?: string }) => {
      const params = { path: { instance_id: id } };
      if (action.command === "open_gate")
        await body(
          api.POST("/v1/processes/{instance_id}/gates", {
            params,
            body: { action: action.gate ?? action.action, reason },
          }),
        );
      else
        await body(
          api.POST("/v1/processes/{instance_id}/transitions", {
            params,
            body: { action: action.action, reason },
          }),
        );
    },
    onSuccess: () => {
      setAsked(undefined);
      void client.invalidateQueries({ queryKey: ["processes", id] });
    },
  });
  const name = useActionName();
  // Decisions are taken on the gate's own page, where what is decided is shown.
  const offered = (query.data ?? []).filter((action) => action.command !== "decide_gate");
  if (query.isError) return <Failure error={query.error} />;
  if (offered.length === 0) return null;
  // A guarded move and the request for its approval are one line.
  const moves = offered.filter((action) => action.command !== "open_gate");
  return (
    <section className="mt-8" data-key=".">
      <h2 className="mb-2">{t("process.next")}</h2>
      <ul className="border-t border-line">
        {moves.map((move) => {
          const asks = offered.find((one) => one.command === "open_gate" && one.gate === move.action);
          const possible = [move, asks].filter((one) => one?.ok);
          return (
            <li
              key={`${move.action}:${move.to_state}`}
              className="grid items-center gap-x-6 gap-y-1 border-b border-line py-2.5 sm:grid-cols-[16rem_1fr_auto]"
            >
              <span>
                <strong className="font-medium">{plain(move.action)}</strong>{" "}
                <span className="text-soft">→ {move.to_state}</span>
              </span>
              <span lang="en" className="text-xs text-soft">
                <Said text={move.problems.map((problem) => problem.message).join("; ")} />
              </span>
              <span className="flex gap-2">
                {possible.map(
                  (one) =>
                    one && (
                      <Button
                        key={one.command}
                        look={one === move ? "primary" : "plain"}
                        onClick={() => {
                          act.reset();
                          setAsked(one);
                        }}
                      >
                        {name(one)}
                      </Button>
                    ),
                )}
              </span>
            </li>
          );
        })}
      </ul>
      {asked && (
        <ReasonDialog
          title={name(asked)}
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
