// A new run from a step of one that has ended, with what the steps before it have left.
import { useMutation } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, body } from "@/api/client";
import type { SchemaRunView } from "@/api/schema";
import { useTranslation } from "@/app/i18n";
import { useMe } from "@/app/session";
import { Button } from "@/ui/button";
import { ReasonDialog } from "@/ui/dialog";

export function StartFrom({ run, step }: { run: SchemaRunView; step: string }) {
  const { t } = useTranslation();
  const { data: me } = useMe();
  const navigate = useNavigate();
  const [asked, setAsked] = useState(false);
  const start = useMutation({
    mutationFn: () => {
      const { definition, subject_ref, input, run_id } = run;
      const from_step = { run_id, step };
      return body(api.POST("/v1/runs", { body: { definition, subject_ref, input, from_step } }));
    },
    onSuccess: ({ run_id }) => {
      setAsked(false);
      void navigate({ to: "/runs/$id", params: { id: run_id } });
    },
  });
  const scope = "runs:start";
  const finer = `${scope}:${run.definition.split("@")[0]}`;
  if (!me?.scopes.some((one) => one === scope || one === finer)) return;
  return (
    <>
      <Button className="self-start" onClick={() => setAsked(true)}>
        {t("run.startFrom")}
      </Button>
      {asked && (
        <ReasonDialog
          title={t("run.startFromConfirm", { step })}
          lead={t("run.startFromWhy", { step })}
          noReason
          confirm={t("definition.start")}
          pending={start.isPending}
          error={start.error}
          onClose={() => setAsked(false)}
          onConfirm={() => start.mutate()}
        />
      )}
    </>
  );
}
