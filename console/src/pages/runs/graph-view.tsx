// The graph of a run with its tools: search, lanes, groups, critical path. What is chosen is kept in the URL.
import { ChevronsDownUp, ChevronsUpDown } from "lucide-react";
import { useMemo } from "react";
import { useTranslation } from "@/app/i18n";
import type { RunSearch } from "@/app/search";
import type { Cells } from "@/graph/cells";
import { LANES, type LaneBy, type Step } from "@/graph/model";
import { StepGraph } from "@/graph/step-graph";
import { Picker } from "@/ui/form";
import { StepSearch } from "./step-search";

export function GraphView({
  label,
  steps,
  cells,
  critical,
  start,
  search,
  selected,
  onSelect,
  onUnfold,
  go,
}: {
  label: string;
  steps: Step[];
  cells?: Cells;
  critical: number[];
  start?: string;
  search: Pick<RunSearch, "lanes" | "collapsed" | "critical">;
  selected?: string;
  onSelect: (id: string) => void;
  /** Shows or hides the steps of a sub-workflow. */
  onUnfold?: (id: string) => void;
  go: (part: RunSearch) => void;
}) {
  const { t } = useTranslation();
  const groups = useMemo(() => {
    const counts = new Map<string, number>();
    for (const { category } of steps) if (category) counts.set(category, (counts.get(category) ?? 0) + 1);
    return [...counts];
  }, [steps]);
  const collapsed = useMemo(() => new Set(search.collapsed?.split(",") ?? []), [search.collapsed]);
  // By its text: the path is a new array with every change of the run, and mostly the same one.
  const marked = search.critical ? critical.join() : "";
  const path = useMemo(() => new Set(marked === "" ? [] : marked.split(",")), [marked]);
  const toggle = (category: string) => {
    const next = new Set(collapsed);
    if (!next.delete(category)) next.add(category);
    go({ collapsed: [...next].join(",") || undefined });
  };
  const lanes: [LaneBy, string][] = [
    ["parallel", t("run.lanesParallel")],
    ["none", t("run.lanesNone")],
    ["pic", t("run.lanesPic")],
    ["run", t("run.lanesRun")],
    ...(groups.length > 0 ? [["category", t("run.lanesCategory")] as [LaneBy, string]] : []),
  ];
  return (
    <section aria-label={t("run.graph")} className="min-w-0 flex-1">
      <div className="mb-3 flex flex-wrap items-end gap-x-4 gap-y-2">
        <StepSearch steps={steps} onFound={onSelect} />
        <Picker
          id="lanes"
          label={t("run.lanes")}
          value={search.lanes ?? LANES[0]}
          onChange={(lanes) => go({ lanes: lanes === LANES[0] ? undefined : lanes })}
          options={lanes}
        />
        {critical.length > 0 && (
          <label className="flex min-h-9 items-center gap-2">
            <input
              type="checkbox"
              checked={search.critical ?? false}
              onChange={(event) => go({ critical: event.target.checked || undefined })}
            />
            {t("run.critical")}
          </label>
        )}
        {groups.length > 0 && (
          <fieldset>
            <legend className="kicker mb-1">{t("run.groups")}</legend>
            <div className="flex flex-wrap gap-1.5">
              {groups.map(([category, count]) => (
                <button
                  key={category}
                  type="button"
                  aria-pressed={collapsed.has(category)}
                  title={t(collapsed.has(category) ? "run.expand" : "run.collapse", { group: category })}
                  onClick={() => toggle(category)}
                  className="inline-flex min-h-9 items-center gap-1.5 rounded-md border border-field-line px-2.5 aria-pressed:bg-accent-wash aria-pressed:text-accent"
                >
                  {collapsed.has(category) ? (
                    <ChevronsUpDown aria-hidden size={14} />
                  ) : (
                    <ChevronsDownUp aria-hidden size={14} />
                  )}
                  {category}
                  <span className="tabular text-xs text-soft">{count}</span>
                </button>
              ))}
            </div>
          </fieldset>
        )}
      </div>
      <StepGraph
        label={label}
        steps={steps}
        cells={cells}
        laneBy={search.lanes}
        collapsed={collapsed}
        onExpand={toggle}
        selected={selected}
        onSelect={onSelect}
        onUnfold={onUnfold}
        start={start}
        critical={path}
      />
    </section>
  );
}
