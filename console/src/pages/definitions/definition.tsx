// One definition: the Standard Process View, its versions with what changed, its source, and the form that starts it.
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import { api, body } from "@/api/client";
import type { SchemaGraph } from "@/api/schema";
import type { DefinitionSearch } from "@/app/search";
import { StepGraph } from "@/graph/step-graph";
import { Failure, Skeleton } from "@/ui/feedback";
import { Picker } from "@/ui/form";
import { Tabs } from "@/ui/tabs";
import { Id, Moment } from "@/ui/text";
import { MachineDrawing } from "../processes/machine";
import { stepsOf, useGraph } from "../runs/run";
import { Diff } from "./diff";
import { StartForm } from "./start-form";

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
      <header className="flex flex-col gap-2">
        <p className="text-xs text-soft">
          <Link to="/definitions" className="hover:underline">
            {t("page.definitions")}
          </Link>
        </p>
        <h1>{name}</h1>
        <div className="flex flex-wrap items-end gap-4">
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
            <p className="flex flex-wrap items-center gap-x-4 pb-2 text-xs text-soft">
              <span>
                {t("definition.publishedBy", { who: shown.published_by })} <Moment at={shown.published_at} />
              </span>
              <Id value={shown.digest} length={12} />
            </p>
          )}
        </div>
      </header>
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
      <div className="mt-4">
        {(search.tab ?? "view") === "view" && <Picture graph={graph.data} label={name} />}
        {search.tab === "start" && <StartForm definition={`${name}@${version}`} graph={graph.data} />}
        {search.tab === "source" &&
          (source.data ? <Source text={source.data.document} name={name} /> : <Skeleton lines={10} />)}
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
export function Picture({ graph, label }: { graph: SchemaGraph; label: string }) {
  const steps = useMemo(() => stepsOf(graph), [graph]);
  if (graph.nodes)
    return (
      <div className="h-[min(65dvh,40rem)] rounded-lg border border-line">
        <StepGraph steps={steps} label={label} />
      </div>
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

function Source({ text, name }: { text: string; name: string }) {
  const { t } = useTranslation();
  return (
    <>
      <Link to="/definitions/new" search={{ from: name }} className="mb-3 inline-block text-accent underline">
        {t("definition.edit")}
      </Link>
      <pre className="overflow-x-auto rounded-md bg-wash p-4 font-mono text-xs">{text}</pre>
    </>
  );
}
