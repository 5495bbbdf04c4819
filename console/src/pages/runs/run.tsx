// One run: is it all right, and if not, where and who?
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { type ReactNode, useMemo } from "react";
import { api, body } from "@/api/client";
import type { SchemaRunCells, SchemaRunView } from "@/api/schema";
import { useTranslation } from "@/app/i18n";
import type { RunSearch } from "@/app/search";
import type { Step } from "@/graph/model";
import { Failure, Skeleton } from "@/ui/feedback";
import { PageHead } from "@/ui/page";
import { Person } from "@/ui/person";
import { Progress } from "@/ui/progress";
import { Tabs } from "@/ui/tabs";
import { Id, Moment, useNow } from "@/ui/text";
import { duration } from "@/ui/time";
import { Values } from "@/ui/values";
import { Actions } from "./actions";
import { toggled } from "./expanded";
import { stepsOf, useGraph } from "./graph-data";
import { GraphView } from "./graph-view";
import { Outline } from "./outline";
import { Reason } from "./reason";
import { Records } from "./records";
import { Runbook } from "./runbook";
import { StartFrom } from "./start-from";
import { StepDrawer } from "./step-drawer";
import { useSubRuns } from "./sub-runs";
import { Timeline } from "./timeline";
import { useRunCells } from "./use-cells";

export function Run() {
  const { t } = useTranslation();
  const { id } = useParams({ from: "/frame/runs/$id" });
  const search = useSearch({ from: "/frame/runs/$id" });
  const navigate = useNavigate();
  const { query, cells, children } = useRunCells(id);
  const sequence = query.data?.sequence;
  const run = useQuery({
    queryKey: ["runs", id, "view", sequence],
    queryFn: () => body(api.GET("/v1/runs/{run_id}", { params: { path: { run_id: id } } })),
    placeholderData: (before) => before,
  });
  const graph = useGraph(run.data?.definition);
  const own = useMemo(() => stepsOf(graph.data), [graph.data]);
  const expanded = useMemo(() => new Set(search.expanded?.split(",") ?? []), [search.expanded]);
  const { steps, feeds } = useSubRuns(own, { data: query.data, children }, expanded, cells);

  if (query.isError) return <Failure error={query.error} retry={() => void query.refetch()} />;
  if (run.isError) return <Failure error={run.error} retry={() => void run.refetch()} />;
  if (!query.data || !run.data) return <Skeleton lines={6} />;

  const go = (part: RunSearch) =>
    void navigate({ to: "/runs/$id", params: { id }, search: { ...search, ...part }, replace: true });
  const chosen = steps.find((step) => (step.key ?? step.name) === search.step);
  const choose = (seq: string) => {
    const step = steps.find((step) => step.id === seq);
    go({ step: step?.key ?? step?.name });
  };
  const unfold = (seq: string) => go({ expanded: toggled(expanded, seq) });
  const decisive = own.find((step) => step.name === query.data.rollup.decisive_step);
  const isRunbook = run.data.hard_cap_ms != null || run.data.phase != null;
  const tab = search.tab ?? (isRunbook ? "runbook" : "graph");

  return (
    <>
      {feeds}
      <Head
        run={run.data}
        cells={query.data}
        decides={tab !== "runbook" || run.data.state !== "stopped"}
        onStep={(step) => go({ step, tab: isRunbook ? "graph" : undefined })}
      />
      <Tabs
        label={t("run.views")}
        value={tab}
        onChange={(tab) => go({ tab: tab === (isRunbook ? "runbook" : "graph") ? undefined : tab })}
        tabs={[
          ...(isRunbook ? ([["runbook", t("runbook.title")]] as [string, string][]) : []),
          ["graph", t("run.graph")],
          ["outline", t("run.outline")],
          ["timeline", t("run.timeline")],
          ["data", t("run.data")],
          ["records", t("run.records")],
        ]}
      />
      <div className="mt-5 flex items-start gap-6">
        <div className="min-w-0 flex-1">
          {tab === "runbook" && (
            <Runbook
              run={run.data}
              sequence={query.data.sequence}
              graph={graph.data}
              onSelect={(step) => go({ step })}
            />
          )}
          {tab === "graph" && steps.length > 0 && (
            <GraphView
              label={t("run.graphOf", { subject: run.data.subject_ref })}
              steps={steps}
              cells={cells}
              critical={query.data.critical_path}
              start={decisive?.id}
              search={search}
              selected={chosen?.id}
              onSelect={choose}
              onUnfold={unfold}
              go={go}
            />
          )}
          {tab === "outline" && (
            <Outline steps={steps} cells={cells} selected={chosen?.id} onSelect={choose} />
          )}
          {tab === "timeline" && <Timeline run={run.data} onSelect={(step) => go({ step })} />}
          {tab === "records" && <Records runId={id} sequence={query.data.sequence} />}
          {tab === "data" && (
            <div className="grid gap-10 lg:grid-cols-2">
              <section>
                <h2 className="mb-3">{t("run.input")}</h2>
                <Values value={run.data.input} />
              </section>
              <section>
                <h2 className="mb-3">{t("run.output")}</h2>
                <Values value={run.data.output} />
              </section>
            </div>
          )}
        </div>
        {chosen && (
          <Drawer
            key={chosen.id}
            runId={chosen.inRun ?? id}
            step={chosen}
            again={!chosen.inRun && run.data.ended_at && <StartFrom run={run.data} step={chosen.name} />}
            onClose={() => {
              go({ step: undefined });
              document.getElementById(`step-${chosen.id}`)?.focus();
            }}
          />
        )}
      </div>
    </>
  );
}

/** Of a step here or in a sub-workflow, each as of the newest record of its own run. */
function Drawer(shown: { runId: string; step: Step; onClose: () => void; again?: ReactNode }) {
  const { query } = useRunCells(shown.runId);
  return <StepDrawer {...shown} sequence={query.data?.sequence ?? 0} />;
}

function Head({
  run,
  cells,
  decides,
  onStep,
}: {
  run: SchemaRunView;
  cells: SchemaRunCells;
  /** Leads to the decision that waits. */
  decides: boolean;
  onStep: (name: string) => void;
}) {
  const { t } = useTranslation();
  const now = useNow();
  const { mandatory_completed: done, mandatory_total: total } = cells.progress;
  const until = run.ended_at ? Date.parse(run.ended_at) : now;
  const took = duration(Math.max(0, until - Date.parse(run.started_at)));
  const related: [string, string | null | undefined][] = [
    [t("run.parent"), run.parent_run_id],
    [t("run.corrects"), run.corrects],
    [t("run.continues"), run.continues],
  ];
  return (
    <PageHead
      trail={
        <>
          <Link to="/runs" className="hover:underline">
            {t("page.runs")}
          </Link>{" "}
          /{" "}
          <Link
            to="/definitions/$name"
            params={{ name: run.definition.split("@")[0] ?? "" }}
            search={{ version: Number(run.definition.split("@")[1]) || undefined }}
            className="hover:underline"
          >
            {run.definition}
          </Link>
        </>
      }
      title={run.subject_ref}
      actions={<Actions runId={run.run_id} gates={run.gates} sequence={cells.sequence} decides={decides} />}
    >
      <Reason run={run} cells={cells} onStep={onStep} />
      <div className="flex flex-wrap items-center gap-x-6 gap-y-1 text-xs text-soft">
        <span className="flex items-center gap-2.5">
          <Progress label={t("run.progress")} value={done} of={total} />
          <span className="tabular">{t("run.done", { done, total })}</span>
        </span>
        <span>
          {t("run.startedBy")} <Person who={run.initiator_ref} />, <Moment at={run.started_at} />
        </span>
        <span>{t(run.ended_at ? "run.took" : "run.since", { time: took })}</span>
        {related.map(
          ([words, id]) =>
            id && (
              <Link key={words} to="/runs/$id" params={{ id }} className="underline">
                {words}
              </Link>
            ),
        )}
        <Id value={run.run_id} />
      </div>
    </PageHead>
  );
}
