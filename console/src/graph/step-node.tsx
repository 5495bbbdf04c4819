// One card per step. It draws what the zoom allows: all of it, icon and name, or the state's colour with a large name.
import { Handle, type NodeProps, Position, useStore } from "@xyflow/react";
import { Clock, Cog, Globe, type LucideIcon, Network, Stamp, Terminal, User } from "lucide-react";
import { memo } from "react";
import { useTranslation } from "react-i18next";
import { useToken } from "@/ui/state";
import { type Cells, useCell, useCellsVersion } from "./cells";
import type { Drawn, Step } from "./model";

const KINDS: Record<string, LucideIcon> = {
  worker: Cog,
  shell: Terminal,
  http: Globe,
  approval: Stamp,
  wait: Clock,
  workflow: Network,
  human: User,
};

export type StepNodeData = {
  drawn: Drawn;
  cells?: Cells;
  selected: boolean;
  critical: boolean;
  /** The one step that the Tab key reaches; arrow keys move on from there. */
  focusable: boolean;
  onOpen: (id: string) => void;
  onKey: (event: React.KeyboardEvent, id: string) => void;
  onRender?: (id: string) => void;
};

/** How much is drawn: changes at three places only, so zooming re-renders no node in between. */
type Detail = "far" | "middle" | "near";
const detailOf = (zoom: number): Detail => (zoom < 0.4 ? "far" : zoom < 0.75 ? "middle" : "near");

export const StepNode = memo(function StepNode({ data }: NodeProps & { data: StepNodeData }) {
  const { drawn } = data;
  return (
    <>
      <Handle type="target" position={Position.Left} className="invisible" isConnectable={false} />
      {drawn.kind === "step" ? (
        <StepCard data={data} step={drawn.step} />
      ) : (
        <GroupChip data={data} group={drawn} />
      )}
      <Handle type="source" position={Position.Right} className="invisible" isConnectable={false} />
    </>
  );
});

function StepCard({ data, step }: { data: StepNodeData; step: Step }) {
  const { t } = useTranslation();
  data.onRender?.(step.id);
  const cell = useCell(data.cells, step.id);
  const detail = useStore((state) => detailOf(state.transform[2]));
  const { colours, Shape } = useToken(cell?.token);
  const Kind = KINDS[step.run] ?? Cog;
  const fact = cell?.fact ?? step.when ?? step.workflow ?? step.pic ?? step.queue;
  const words = [step.name, cell?.label, cell?.fact, step.optional ? t("graph.optional") : undefined]
    .filter(Boolean)
    .join(" · ");
  const far = detail === "far";
  return (
    <button
      type="button"
      id={`step-${step.id}`}
      tabIndex={data.focusable ? 0 : -1}
      aria-label={words}
      aria-pressed={data.selected}
      onClick={() => data.onOpen(step.id)}
      onKeyDown={(event) => data.onKey(event, step.id)}
      style={{
        borderLeftColor: cell ? colours.bg : "var(--strong-line)",
        ...(far && cell ? { backgroundColor: colours.bg, color: colours.fg } : {}),
      }}
      className={`pointer-events-auto flex h-14 w-[200px] flex-col justify-center overflow-hidden rounded-md border border-l-[3px] px-2.5 text-left ${
        data.selected ? "border-accent ring-2 ring-accent" : data.critical ? "border-ink" : "border-line"
      } ${cell?.downstreamOfBlocker ? "border-dashed" : ""} ${step.optional ? "border-dotted" : ""} ${far ? "" : "bg-raised"} ${
        cell?.done && !far ? "text-soft" : ""
      }`}
    >
      <span className={`flex items-center gap-1.5 font-medium ${far ? "text-[26px] leading-7" : "text-sm"}`}>
        {!far && <Kind aria-hidden size={14} className="shrink-0 text-soft" />}
        <span className="truncate">{step.name}</span>
        {step.gate && !far && <Stamp aria-hidden size={13} className="ml-auto shrink-0 text-accent" />}
      </span>
      {detail === "near" && (
        <span className="flex items-center gap-1 text-xs text-soft">
          {cell && <Shape aria-hidden size={12} className="shrink-0" />}
          <span className="truncate">
            {cell ? [cell.label, cell.fact].filter(Boolean).join(" · ") : fact}
          </span>
        </span>
      )}
    </button>
  );
}

function GroupChip({ data, group }: { data: StepNodeData; group: Extract<Drawn, { kind: "group" }> }) {
  const { t } = useTranslation();
  useCellsVersion(data.cells);
  const counts = new Map<string, number>();
  for (const step of group.steps) {
    const label = data.cells?.get(step.id)?.label;
    if (label) counts.set(label, (counts.get(label) ?? 0) + 1);
  }
  const summary =
    [...counts].map(([label, count]) => `${count} ${label}`).join(", ") ||
    t("graph.steps", { count: group.steps.length });
  return (
    <button
      type="button"
      id={`step-${group.id}`}
      tabIndex={data.focusable ? 0 : -1}
      aria-expanded={false}
      aria-label={`${group.category}: ${summary}`}
      onClick={() => data.onOpen(group.id)}
      onKeyDown={(event) => data.onKey(event, group.id)}
      className="pointer-events-auto flex h-14 w-[200px] flex-col justify-center rounded-md border-2 border-double border-strong bg-wash px-2.5 text-left"
    >
      <span className="truncate text-sm font-medium">{group.category}</span>
      <span className="truncate text-xs text-soft">{summary}</span>
    </button>
  );
}
