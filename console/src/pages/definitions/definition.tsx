// One definition: the Standard Process View, its versions with what changed, its source, and the form that starts it.
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import { api, body } from "@/api/client";
import type { SchemaGraph } from "@/api/schema";
import { useTranslation } from "@/app/i18n";
import type { DefinitionSearch } from "@/app/search";
import type { Step } from "@/graph/model";
import { Failure, Skeleton } from "@/ui/feedback";
import { Picker } from "@/ui/form";
import { PageHead } from "@/ui/page";
import { Person } from "@/ui/person";
import { Tabs } from "@/ui/tabs";
import { Id, Moment } from "@/ui/text";
import { MachineDrawing } from "../processes/machine";
import { toggled } from "../runs/expanded";
import { stepsOf, useGraph } from "../runs/graph-data";
import { GraphView } from "../runs/graph-view";
import { Diff } from "./diff";
import { StartForm } from "./start-form";
import { useSubDefinitions } from "./sub-definitions";

const LINK =
  "inline-flex min-h-9 items-center rounded-md border border-field-line bg-raised px-3.5 font-medium hover:bg-wash";

export function Definition() {
  const { t } = useTranslation();
  const { name } = useParams({ from: "/frame/definitions/$name" });
  const search = useSearch({ from: "/frame/definitions/$name" });
  const navigate = useNavigate();
  const versions = useQuery({
    queryKey: ["definitions", name, "versions"],
    queryFn: () => body(api.GET("/v1/definitions/{name}/versions", { params: { path: { name } } })),
  });
  const newest = versions.data?.items.reduce((most, one) => Math.max(most, one.version), 0);
  const version = search.version ?? newest;
  const graph = useGraph(version ? `${name}@${version}` : undefined);
  const source = useQuery({
    queryKey: ["definitions", name, version, "source"],
    enabled: version !== undefined && search.tab === "source",
    staleTime: Number.POSITIVE_INFINITY,
    queryFn: () =>
      body(
        api.GET("/v1/definitions/{name}/versions/{version}", {
          params: { path: { name, version: version ?? 0 } },
        }),
      ),
  });
  if (versions.isError) return <Failure error={versions.error} retry={() => void versions.refetch()} />;
  if (graph.isError) return <Failure error={graph.error} retry={() => void graph.refetch()} />;
  if (!versions.data || !graph.data || version === undefined) return <Skeleton lines={8} />;
  const go = (part: DefinitionSearch) =>
    void navigate({
      to: "/definitions/$name",
      params: { name },
      search: { ...search, ...part },
      replace: true,
    });
  const shown = versions.data.items.find((one) => one.version === version);
  const others = versions.data.items
    .filter((one) => one.version !== version)
    .sort((a, b) => b.version - a.version);
  return (
    <>
      <PageHead
        trail={
          <Link to="/definitions" className="hover:underline">
            {t("page.definitions")}
          </Link>
        }
        title={name}
        actions={
          <span className="flex flex-wrap gap-2">
            <Link to="/proposals" search={{ target: name }} className={LINK}>
              {t("page.proposals")}
            </Link>
            <Link to="/definitions/new" search={{ from: name }} className={LINK}>
              {t("definition.edit")}
            </Link>
          </span>
        }
      >
        <div className="flex flex-wrap items-end gap-x-6 gap-y-2">
          <Picker
            id="version"
            label={t("definition.version")}
            value={String(version)}
            onChange={(value) => go({ version: Number(value), with: undefined })}
            options={versions.data.items
              .map((one): [string, string] => [String(one.version), String(one.version)])
              .reverse()}
          />
          {shown && (
            <p className="flex min-h-9 flex-wrap items-center gap-x-6 text-xs text-soft">
              <span>
                {t("definition.publishedBy")} <Person who={shown.published_by} />,{" "}
                <Moment at={shown.published_at} />
              </span>
              <Id value={shown.digest} length={12} />
            </p>
          )}
        </div>
        {shown?.retired && (
          <p className="prose border-l-[3px] border-warn bg-warn-wash px-3 py-1.5">
            {t("definition.retiredBy")} <Person who={shown.retired.by} />, <Moment at={shown.retired.at} />
            {shown.retired.reason && <span className="font-serif"> “{shown.retired.reason}”</span>}
          </p>
        )}
      </PageHead>
      <Tabs
        label={t("run.views")}
        value={search.tab ?? "view"}
        onChange={(tab) => go({ tab: tab === "view" ? undefined : tab })}
        tabs={[
          ["view", t("definition.view")],
          ["start", t("definition.start")],
          ["source", t("definition.source")],
          ...(others.length > 0 ? ([["diff", t("definition.diff")]] as [string, string][]) : []),
        ]}
      />
      <div className="mt-5">
        {(search.tab ?? "view") === "view" && (
          <Picture graph={graph.data} label={name} search={search} go={go} />
        )}
        {search.tab === "start" && <StartForm definition={`${name}@${version}`} graph={graph.data} />}
        {search.tab === "source" &&
          (source.data ? <Source text={source.data.document} /> : <Skeleton lines={10} />)}
        {search.tab === "diff" && others[0] && (
          <Diff
            name={name}
            version={version}
            against={search.with ?? others[0].version}
            others={others.map((one) => one.version)}
            onAgainst={(value) => go({ with: value })}
          />
        )}
      </div>
    </>
  );
}

/** The definition as a picture: steps for a workflow, states for a process. */
export function Picture({
  graph,
  label,
  search = {},
  go,
}: {
  graph: SchemaGraph;
  label: string;
  search?: DefinitionSearch;
  go?: (part: DefinitionSearch) => void;
}) {
  const own = useMemo(() => stepsOf(graph), [graph]);
  const expanded = useMemo(() => new Set(search.expanded?.split(",") ?? []), [search.expanded]);
  const { steps, feeds } = useSubDefinitions(own, expanded);
  const nameOf = (step?: Step) => step?.key ?? step?.name;
  if (graph.nodes)
    return (
      <>
        {feeds}
        <GraphView
          label={label}
          steps={steps}
          critical={[]}
          search={search}
          selected={steps.find((step) => nameOf(step) === search.step)?.id}
          onSelect={(id) => go?.({ step: nameOf(steps.find((step) => step.id === id)) })}
          onUnfold={(id) => go?.({ expanded: toggled(expanded, id) })}
          go={(part) => go?.(part)}
        />
      </>
    );
  return (
    <MachineDrawing
      shape={{
        states: graph.states ?? [],
        transitions: (graph.transitions ?? []).map((move) => ({
          from: move.from,
          action: move.action,
          to: move.to,
          guard: move.guard,
        })),
        initial: graph.initial_state ?? "",
        terminal: graph.terminal_states ?? [],
      }}
    />
  );
}

export function Source({ text }: { text: string }) {
  return (
    <div className="flex overflow-x-auto rounded-lg border border-line bg-wash py-3 font-mono text-xs leading-5">
      <pre aria-hidden className="tabular px-3 text-right text-soft select-none">
        {text.split("\n").map((_, at) => `${at + 1}\n`)}
      </pre>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and the keyboard must reach it */}
      <pre tabIndex={0} className="pr-4">
        {text}
      </pre>
    </div>
  );
}
