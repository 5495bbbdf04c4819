// What can be asked for. The server says whether it is possible now, and why not: nothing here knows the states.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, body, Refusal } from "@/api/client";
import type { SchemaProposalView } from "@/api/schema";
import { useTranslation } from "@/app/i18n";
import { Button } from "@/ui/button";
import { ReasonDialog } from "@/ui/dialog";

const VERBS = ["submit", "review", "merge", "withdraw"] as const;
type Verb = (typeof VERBS)[number];

function send(verb: Verb, id: string, reason?: string, evidence_ref?: string): Promise<unknown> {
  const params = { path: { id } };
  if (verb === "merge")
    return body(api.POST("/v1/proposals/{id}/merge", { params, body: { reason, evidence_ref } }));
  return body(api.POST(`/v1/proposals/{id}/${verb}`, { params, body: { reason } }));
}

export function Verbs({ proposal }: { proposal: SchemaProposalView }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const { proposal_id: id } = proposal;
  const [verb, setVerb] = useState<Verb>();
  const [evidence, setEvidence] = useState("");
  const act = useMutation({
    mutationFn: ({ verb, reason }: { verb: Verb; reason?: string }) =>
      send(verb, id, reason, evidence.trim() || undefined),
    onSuccess: () => {
      setVerb(undefined);
      void client.invalidateQueries({ queryKey: ["definitions"] });
    },
    // Also after a refusal: it may say that something moved.
    onSettled: () => client.invalidateQueries({ queryKey: ["proposals"] }),
  });
  const applied = verb === "merge" && proposal.newest_version == null;
  // The newest version is not the base any more.
  const conflict =
    act.error instanceof Refusal && act.error.code === "conflict" && act.error.field === "base_version";
  const moved = conflict && proposal.newest_version;
  return (
    <section aria-label={t("actions.title")} data-key="." className="mb-8 flex flex-wrap gap-2">
      {VERBS.map((one) => (
        <Button
          key={one}
          look={one === "withdraw" ? "danger" : "plain"}
          onClick={() => {
            act.reset();
            setVerb(one);
          }}
        >
          {t(`proposal.verb.${one}`)}
        </Button>
      ))}
      <Link
        to="/proposals/$id/edit"
        params={{ id }}
        className="inline-flex min-h-9 items-center rounded-md border border-field-line bg-raised px-3.5 font-medium hover:bg-wash"
      >
        {t("proposal.edit")}
      </Link>
      {verb && (
        <ReasonDialog
          title={t(`proposal.verb.${verb}`)}
          lead={t(`proposal.verbWhy.${verb}`)}
          danger={verb === "withdraw"}
          confirm={t("process.confirm")}
          pending={act.isPending}
          error={act.error}
          onClose={() => setVerb(undefined)}
          onConfirm={(reason) => act.mutate({ verb, reason })}
        >
          {moved && (
            <p>
              <Link
                to="/proposals/$id/edit"
                params={{ id }}
                search={{ base: moved }}
                className="text-accent underline"
              >
                {t("proposal.rebase", { version: moved })}
              </Link>
            </p>
          )}
          {applied && (
            <div className="flex flex-col gap-1.5">
              <label htmlFor="merge-evidence" className="font-medium">
                {t("needs.evidence_ref")}
              </label>
              <input
                id="merge-evidence"
                required
                value={evidence}
                onChange={(event) => setEvidence(event.target.value)}
                className="field"
              />
            </div>
          )}
        </ReasonDialog>
      )}
    </section>
  );
}
