// Changing what is proposed: it is a draft again, on the same base or on a newer one.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { api, body } from "@/api/client";
import type { SchemaProposalView } from "@/api/schema";
import { useTranslation } from "@/app/i18n";
import { Button } from "@/ui/button";
import { Failure, Skeleton } from "@/ui/feedback";
import { PageHead } from "@/ui/page";
import { useCheck, useSettled, Writing } from "../definitions/writing";
import { ProposalFields, type Said, toBody } from "./fields";
import { useProposal } from "./read";
import { Between } from "./rebase";

export function EditProposal() {
  const { id } = useParams({ from: "/frame/proposals/$id/edit" });
  const { base } = useSearch({ from: "/frame/proposals/$id/edit" });
  const query = useProposal(id);
  if (query.isPending) return <Skeleton lines={8} />;
  if (query.isError) return <Failure error={query.error} retry={() => void query.refetch()} />;
  const version = base ?? query.data.base_version ?? 0;
  return <Edit key={version} proposal={query.data} base={version} />;
}

function Edit({ proposal, base }: { proposal: SchemaProposalView; base: number }) {
  const { t } = useTranslation();
  const { proposal_id: id, target, document, proposed_action: action, evidence_ref } = proposal;
  const navigate = useNavigate();
  const client = useQueryClient();
  const ofDefinition = document != null;
  const [text, setText] = useState(ofDefinition ? document : JSON.stringify(action ?? {}, null, 2));
  const [said, setSaid] = useState<Said>({
    reason: proposal.reason ?? "",
    affected: proposal.affected.join(", "),
  });
  const check = useCheck(useSettled(ofDefinition ? text : "", 400));
  const save = useMutation({
    mutationFn: () => {
      const what = ofDefinition
        ? { document: text, proposed_action: action }
        : { proposed_action: JSON.parse(text) as Record<string, never> };
      const sent = { base_version: base, evidence_ref, ...what, ...toBody(said) };
      return body(api.PUT("/v1/proposals/{id}", { params: { path: { id } }, body: sent }));
    },
    onSuccess: async () => {
      // The diff, too: nobody looks at it here, and the page shows it next.
      await client.invalidateQueries({ queryKey: ["proposals", id], refetchType: "all" });
      void client.invalidateQueries({ queryKey: ["proposals"] });
      void navigate({ to: "/proposals/$id", params: { id } });
    },
  });
  const old = proposal.base_version ?? 0;
  return (
    <>
      <PageHead
        trail={
          <>
            <Link to="/proposals" className="hover:underline">
              {t("page.proposals")}
            </Link>{" "}
            /{" "}
            <Link to="/proposals/$id" params={{ id }} className="hover:underline">
              {target}
            </Link>
          </>
        }
        title={t("proposal.editOf", { target })}
        actions={
          <Button
            look="primary"
            disabled={save.isPending || text.trim() === "" || said.reason.trim() === ""}
            onClick={() => save.mutate()}
          >
            {save.isPending ? t("dialog.recording") : t("proposal.save")}
          </Button>
        }
      >
        <p className="prose text-soft">
          {base === old ? t("proposal.editWhy") : t("proposal.rebaseWhy", { base: old, newest: base })}
        </p>
        <Between name={target} base={old} newest={base} />
      </PageHead>
      <ProposalFields said={said} onSaid={setSaid} />
      {ofDefinition ? (
        <Writing text={text} onText={setText} check={check}>
          {save.isError && <Failure error={save.error} />}
        </Writing>
      ) : (
        <div className="flex max-w-3xl flex-col gap-2">
          <label htmlFor="action" className="font-medium">
            {t("proposal.action")}
          </label>
          <textarea
            id="action"
            rows={12}
            value={text}
            onChange={(event) => setText(event.target.value)}
            className="field py-2 font-mono text-xs"
          />
          {save.isError && <Failure error={save.error} />}
        </div>
      )}
    </>
  );
}
