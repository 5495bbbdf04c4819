// One run: is it all right, and if not, where and who?
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { api, body } from "@/api/client";
import type { SchemaGraph, SchemaRunCells, SchemaRunView } from "@/api/schema";
import type { RunSearch } from "@/app/search";
import type { LaneBy, Step } from "@/graph/model";
import { StepGraph } from "@/graph/step-graph";
import { Failure, Skeleton } from "@/ui/feedback";
import { Picker } from "@/ui/form";
import { StateChip } from "@/ui/state";
import { Tabs } from "@/ui/tabs";
import { Id, Moment } from "@/ui/text";
import { duration } from "@/ui/time";
import { Values } from "@/ui/values";
import { Actions } from "./actions";
import { useStateLooks } from "./looks";
import { Outline } from "./outline";
import { Runbook } from "./runbook";
import { StepDrawer } from "./step-drawer";
import { StepSearch } from "./step-search";
import { Timeline } from "./timeline";
import { useRunCells } from "./use-cells";

/** The definition's steps, as the graph draws them. */
export function stepsOf(graph: SchemaGraph | undefined): Step[] {
  return (graph?.nodes ?? []).map((node) => ({
    id: String(node.step_seq),
    name: node.name,
    run: node.run,
    dependsOn: node.depends_on.map(String),
    queue: node.queue,
    pic: node.pic ?? undefined,
    gate: node.gate ?? undefined,
    when: node.when ?? undefined,
    workflow: node.workflow ?? undefined,
    optional: node.optional,
  }));
}

export function useGraph(definition: string | undefined) {
  const [name = "", version = ""] = definition?.split("@") ?? [];
  return useQuery({
    queryKey: ["graph", definition],
    enabled: definition !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
    queryFn: () =>
      body(
        api.GET("/v1/definitions/{name}/versions/{version}/graph", {
          params: { path: { name, version: Number(version) } },
        }),
      ),
  });
}

export function Run() {
  const { t } = useTranslation();
  const { id } = useParams({ from: "/frame/runs/$id" });
  const search = useSearch({ from: "/frame/runs/$id" });
  const navigate = useNavigate();
  const { query, cells } = useRunCells(id);
  const sequence = query.data?.sequence;
  // The run's own fields, without its steps: the cells bring those.
  const run = useQuery({
    queryKey: ["runs", id, "view", sequence],
    queryFn: () => body(api.GET("/v1/runs/{run_id}", { params: { path: { run_id: id } } })),
    placeholderData: (before) => before,
  });
  const graph = useGraph(run.data?.definition);
  const steps = useMemo(() => stepsOf(graph.data), [graph.data]);
  const [showCritical, setShowCritical] = useState(false);
  const critical = useMemo(
    () => new Set<string>(showCritical ? query.data?.critical_path.map(String) : []),
    [showCritical, query.data?.critical_path],
  );
  const collapsed = useMemo(() => new Set<string>(search.collapsed?.split(",") ?? []), [search.collapsed]);

  if (query.isError) return <Failure error={query.error} retry={() => void query.refetch()} />;
  if (run.isError) return <Failure error={run.error} retry={() => void run.refetch()} />;
  if (!query.data || !run.data) return <Skeleton lines={6} />;

  const go = (part: RunSearch) =>
    void navigate({ to: "/runs/$id", params: { id }, search: { ...search, ...part }, replace: true });
  const chosen = steps.find((step) => step.name === search.step);
  const choose = (seq: string) => go({ step: steps.find((step) => step.id === seq)?.name });
  const categories = [...new Set(steps.flatMap((step) => step.category ?? []))];
  const isRunbook =
    run.data.pins !== undefined && run.data.pins.length > 0
      ? true
      : run.data.hard_cap_ms != null || run.data.phase != null;

  return (
    <>
      <Head run={run.data} cells={query.data} />
      <Actions runId={id} />
      {isRunbook && <Runbook run={run.data} />}
      <Tabs
        label={t("run.views")}
        value={search.tab ?? "graph"}
        onChange={(tab) => go({ tab: tab === "graph" ? undefined : tab })}
        tabs={[
          ["graph", t("run.graph")],
          ["outline", t("run.outline")],
          ["timeline", t("run.timeline")],
          ["data", t("run.data")],
        ]}
      />
      {(search.tab ?? "graph") === "graph" && (
        <section aria-label={t("run.graph")}>
          <div className="my-3 flex flex-wrap items-end gap-3">
            <StepSearch steps={steps} onFound={choose} />
            <Picker
              id="lanes"
              label={t("run.lanes")}
              value={search.lanes ?? "none"}
              onChange={(lanes) => go({ lanes: lanes === "none" ? undefined : (lanes as LaneBy) })}
              options={[
                ["none", t("run.lanesNone")],
                ["pic", t("run.lanesPic")],
                ["run", t("run.lanesRun")],
              ]}
            />
            <label className="flex min-h-9 items-center gap-2 text-sm">
              <input
                type="checkbox"
                checked={showCritical}
                onChange={(event) => setShowCritical(event.target.checked)}
              />
              {t("run.critical")}
            </label>
            {categories.length > 0 && (
              <button
                type="button"
                className="min-h-9 text-sm text-accent underline"
                onClick={() => go({ collapsed: collapsed.size > 0 ? undefined : categories.join(",") })}
              >
                {collapsed.size > 0 ? t("run.expand") : t("run.collapse")}
              </button>
            )}
          </div>
          <div className="flex h-[min(70dvh,44rem)] gap-4">
            <div className="min-w-0 flex-1 rounded-lg border border-line">
              <StepGraph
                label={t("run.graphOf", { subject: run.data.subject_ref })}
                steps={steps}
                cells={cells}
                laneBy={search.lanes ?? "none"}
                collapsed={collapsed}
                onExpand={(category) =>
                  go({ collapsed: [...collapsed].filter((one) => one !== category).join(",") || undefined })
                }
                selected={chosen?.id}
                onSelect={choose}
                critical={critical}
              />
            </div>
            {chosen && (
              <StepDrawer
                runId={id}
                step={chosen}
                sequence={query.data.sequence}
                onClose={() => go({ step: undefined })}
              />
            )}
          </div>
        </section>
      )}
      {search.tab === "outline" && (
        <Outline
          steps={steps}
          cells={cells}
          onSelect={(seq) => go({ tab: undefined, step: steps.find((step) => step.id === seq)?.name })}
        />
      )}
      {search.tab === "timeline" && <Timeline runId={id} sequence={query.data.sequence} />}
      {search.tab === "data" && (
        <div className="mt-4 grid gap-8 lg:grid-cols-2">
          <section>
            <h2 className="mb-2">{t("run.input")}</h2>
            <Values value={run.data.input} />
          </section>
          <section>
            <h2 className="mb-2">{t("run.output")}</h2>
            <Values value={run.data.output} />
          </section>
        </div>
      )}
    </>
  );
}

function Head({ run, cells }: { run: SchemaRunView; cells: SchemaRunCells }) {
  const { t } = useTranslation();
  const looks = useStateLooks("workflow_run");
  const stepLooks = useStateLooks("workflow_step");
  const state = looks(cells.state);
  const { mandatory_completed: done, mandatory_total: total } = cells.progress;
  const decisive = cells.rollup.decisive_step;
  const ended = run.ended_at ? Date.parse(run.ended_at) : Date.now();
  return (
    <header className="mb-4 flex flex-col gap-2">
      <p className="text-xs text-soft">
        <Link to="/runs" className="hover:underline">
          {t("page.runs")}
        </Link>{" "}
        / {run.definition}
      </p>
      <h1>{run.subject_ref}</h1>
      <div className="flex flex-wrap items-center gap-x-4 gap-y-2 text-sm">
        <StateChip token={state.token} words={state.label} title={state.short} />
        {decisive && (
          <span>
            <strong>{decisive}</strong>{" "}
            {stepLooks(cells.rollup.decisive_state_code ?? "").label.toLowerCase()}
          </span>
        )}
        {run.last_error && <span className="text-bad">{run.last_error}</span>}
        {run.reason && <span className="text-soft">“{run.reason}”</span>}
      </div>
      <div className="flex flex-wrap items-center gap-x-5 gap-y-1 text-xs text-soft">
        <span className="flex items-center gap-2">
          <span
            role="progressbar"
            aria-valuenow={done}
            aria-valuemin={0}
            aria-valuemax={total}
            aria-label={t("run.progress")}
            className="h-1.5 w-32 overflow-hidden rounded-full border border-line bg-wash"
          >
            <span
              className="block h-full bg-accent"
              style={{ width: `${total > 0 ? (done / total) * 100 : 0}%` }}
            />
          </span>
          <span className="tabular">{t("run.done", { done, total })}</span>
        </span>
        <span>
          {t("run.startedBy", { who: run.initiator_ref })} <Moment at={run.started_at} />
        </span>
        <span>{t("run.took", { time: duration(ended - Date.parse(run.started_at)) })}</span>
        {run.parent_run_id && (
          <Link to="/runs/$id" params={{ id: run.parent_run_id }} className="underline">
            {t("run.parent")}
          </Link>
        )}
        <Id value={run.run_id} />
      </div>
    </header>
  );
}
