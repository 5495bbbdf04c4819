// What the proposed document changes, on the graph and beside it as text, with the problems that it has.
import type { UseQueryResult } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import type { SchemaProposalDiff, SchemaProposalView } from "@/api/schema";
import { useTranslation } from "@/app/i18n";
import { StepGraph } from "@/graph/step-graph";
import { Failure, Skeleton } from "@/ui/feedback";
import { Picker } from "@/ui/form";
import { Picture, Source } from "../definitions/definition";
import { Changes, compared } from "../definitions/diff";
import { Problems, useCheck } from "../definitions/writing";
import { stepsOf, useGraph } from "../runs/graph-data";

export function Changed({
  proposal,
  diff: query,
}: {
  proposal: SchemaProposalView;
  diff: UseQueryResult<SchemaProposalDiff>;
}) {
  const { t } = useTranslation();
  const [against, setAgainst] = useState<"base" | "newest">("base");
  if (query.isPending) return <Skeleton lines={6} />;
  if (query.isError) return <Failure error={query.error} retry={() => void query.refetch()} />;
  const all = query.data;
  // Once it is merged, the newest version is what was proposed.
  const two = all.needs_rebase && proposal.merged == null && all.newest_version > 0;
  const version = two && against === "newest" ? all.newest_version : all.base_version;
  const diff = two && against === "newest" ? all.newest : all.base;
  return (
    <section className="mt-8 flex flex-col gap-4">
      <div className="flex flex-wrap items-end justify-between gap-4">
        <h2>{t("definition.diff")}</h2>
        {two && (
          <Picker
            id="against"
            label={t("definition.against")}
            value={against}
            onChange={setAgainst}
            options={[
              ["base", `${all.base_version} (${t("proposal.base")})`],
              ["newest", `${all.newest_version} (${t("proposal.newest")})`],
            ]}
          />
        )}
      </div>
      {all.problems.length > 0 && <Problems problems={all.problems} />}
      <Drawn proposal={proposal} version={version} diff={diff ?? undefined} />
      <details>
        <summary className="w-fit cursor-pointer text-soft">{t("proposal.document")}</summary>
        <div className="mt-3">
          <Source text={proposal.document ?? ""} />
        </div>
      </details>
    </section>
  );
}

function Drawn({
  proposal,
  version,
  diff,
}: {
  proposal: SchemaProposalView;
  version: number;
  diff?: SchemaProposalDiff["base"];
}) {
  const { t } = useTranslation();
  const old = useGraph(version > 0 ? `${proposal.target}@${version}` : undefined);
  const now = useCheck(proposal.document ?? "").data?.graph;
  // Without the right to read definitions, what was removed is in the text alone.
  const ready = now && !old.isLoading;
  const steps = useMemo(
    () => (diff && ready ? compared(stepsOf(old.data), stepsOf(now), diff) : []),
    [diff, ready, old.data, now],
  );
  if (!ready) return null;
  const picture =
    steps.length > 0 ? (
      <StepGraph steps={steps} label={t("definition.diff")} />
    ) : (
      <Picture graph={now} label={t("definition.view")} />
    );
  return (
    <div className="grid gap-6 xl:grid-cols-[3fr_2fr]">
      <div className="min-w-0">{picture}</div>
      <div className="min-w-0">
        {diff ? <Changes diff={diff} /> : <p className="text-soft">{t("proposal.firstWhy")}</p>}
      </div>
    </div>
  );
}
