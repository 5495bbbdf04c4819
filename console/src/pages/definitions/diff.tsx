// What changed between two versions, on the graph and as a list of values.
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { api, body } from "@/api/client";
import type { SchemaDefinitionDiff } from "@/api/schema";
import { useTranslation } from "@/app/i18n";
import type { Step } from "@/graph/model";
import { StepGraph } from "@/graph/step-graph";
import { Failure, Skeleton } from "@/ui/feedback";
import { Picker } from "@/ui/form";
import { stepsOf, useGraph } from "../runs/graph-data";

export function Diff({
  name,
  version,
  against,
  others,
  onAgainst,
}: {
  name: string;
  version: number;
  against: number;
  others: number[];
  onAgainst: (version: number) => void;
}) {
  const { t } = useTranslation();
  const query = useQuery({
    queryKey: ["definitions", name, "diff", against, version],
    staleTime: Number.POSITIVE_INFINITY,
    queryFn: () =>
      body(
        api.GET("/v1/definitions/{name}/versions/{version}/diff", {
          params: { path: { name, version: against }, query: { with: String(version) } },
        }),
      ),
  });
  const old = useGraph(`${name}@${against}`);
  const now = useGraph(`${name}@${version}`);
  const steps = useMemo(
    () => (query.data ? compared(stepsOf(old.data), stepsOf(now.data), query.data) : []),
    [old.data, now.data, query.data],
  );
  return (
    <div className="flex flex-col gap-5">
      <Picker
        id="against"
        label={t("definition.against")}
        value={String(against)}
        onChange={(value) => onAgainst(Number(value))}
        options={others.map((one): [string, string] => [String(one), String(one)])}
      />
      {query.isError && <Failure error={query.error} />}
      {query.isPending && <Skeleton />}
      {steps.length > 0 && <StepGraph steps={steps} label={t("definition.diff")} />}
      {query.data && <Changes diff={query.data} />}
    </div>
  );
}

/** The steps of both versions in one graph: the new one, with what it removed beside it. */
export function compared(old: Step[], now: Step[], diff: SchemaDefinitionDiff): Step[] {
  const changed = new Set(diff.changed.map((one) => /^steps\.([^.[]+)/.exec(one.path)?.[1]));
  const ids = new Map(now.map((step) => [step.name, step.id]));
  const oldNames = new Map(old.map((step) => [step.id, step.name]));
  const kept = now.map((step): Step => {
    const mark = diff.added.includes(step.name) ? "added" : changed.has(step.name) ? "changed" : undefined;
    return { ...step, mark };
  });
  const removed = old
    .filter((step) => !ids.has(step.name))
    .map((step): Step => {
      const dependsOn = step.dependsOn.map((id) => ids.get(oldNames.get(id) ?? "") ?? `old-${id}`);
      return { ...step, id: `old-${step.id}`, dependsOn, mark: "removed" };
    });
  return [...kept, ...removed];
}

export function Changes({ diff }: { diff: SchemaDefinitionDiff }) {
  const { t } = useTranslation();
  const nothing =
    diff.added.length + diff.removed.length + diff.changed.length === 0 &&
    diff.edges.added.length + diff.edges.removed.length === 0;
  if (nothing) return <p className="text-soft">{t("definition.same")}</p>;
  return (
    <div className="flex flex-col gap-5 text-sm">
      <Names sign="+" title={t("definition.added")} names={diff.added} look="bg-ok-wash" />
      <Names sign="−" title={t("definition.removed")} names={diff.removed} look="bg-bad-wash" />
      <Names
        sign="+"
        title={t("definition.edgesAdded")}
        names={diff.edges.added.map(edge)}
        look="bg-ok-wash"
      />
      <Names
        sign="−"
        title={t("definition.edgesRemoved")}
        names={diff.edges.removed.map(edge)}
        look="bg-bad-wash"
      />
      {diff.changed.length > 0 && (
        <table className="w-full border-collapse">
          <caption className="mb-1.5 text-left font-medium">{t("definition.changed")}</caption>
          <tbody>
            {diff.changed.map((change) => (
              <tr key={change.path} className="border-t border-line align-top">
                <th scope="row" className="py-1.5 pr-4 text-left font-mono text-xs font-normal">
                  {change.path}
                </th>
                <td className="w-2/5 bg-bad-wash px-2 py-1.5 font-mono text-xs [overflow-wrap:anywhere]">
                  {JSON.stringify(change.from)}
                </td>
                <td className="w-2/5 bg-ok-wash px-2 py-1.5 font-mono text-xs [overflow-wrap:anywhere]">
                  {JSON.stringify(change.to)}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </div>
  );
}

const edge = (edge: { from: string; to: string; label?: string | null }) =>
  `${edge.from} → ${edge.to}${edge.label ? ` (${edge.label})` : ""}`;

function Names({ sign, title, names, look }: { sign: string; title: string; names: string[]; look: string }) {
  if (names.length === 0) return null;
  return (
    <div>
      <p className="mb-1.5 font-medium">{title}</p>
      <ul className="flex flex-wrap gap-2">
        {names.map((name) => (
          <li key={name} className={`rounded px-2 py-0.5 ${look}`}>
            <span aria-hidden>{sign}</span> {name}
          </li>
        ))}
      </ul>
    </div>
  );
}
