// One card per step. It draws what the zoom allows: all of it, icon and name, or the state's colour with a large name.
import { Handle, type NodeProps, Position, useStore } from "@xyflow/react";
import {
  ChevronsLeft,
  ChevronsRight,
  Clock,
  Cog,
  Globe,
  Layers,
  type LucideIcon,
  Network,
  Stamp,
  Terminal,
  User,
} from "lucide-react";
import { memo, type ReactNode, useRef } from "react";
import { useTranslation } from "@/app/i18n";
import { initials, useName } from "@/ui/person";
import { useToken } from "@/ui/state";
import { Moment } from "@/ui/text";
import { type Cells, useCell, useCellsVersion } from "./cells";
import { type Count, condition, type Drawn, type Fork, type Step } from "./model";

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
  /** Shows or hides the steps of a sub-workflow. */
  onUnfold?: (id: string) => void;
  onKey: (event: React.KeyboardEvent, id: string) => void;
};

/** How much is drawn: changes at two places only, so zooming re-renders no node in between. */
type Detail = "far" | "middle" | "near";
const detailOf = (zoom: number): Detail => (zoom < 0.4 ? "far" : zoom < 0.7 ? "middle" : "near");

export const StepNode = memo(function StepNode({ data }: NodeProps & { data: StepNodeData }) {
  const { drawn } = data;
  return (
    <>
      <Handle type="target" position={Position.Left} className="invisible" isConnectable={false} />
      {drawn.kind === "step" ? (
        <StepCard data={data} step={drawn.step} fork={drawn.fork} />
      ) : (
        <GroupChip data={data} group={drawn} />
      )}
      <Handle type="source" position={Position.Right} className="invisible" isConnectable={false} />
    </>
  );
});

const MARKS = {
  added: ["+", "border-ok bg-ok-wash"],
  removed: ["−", "border-bad bg-bad-wash line-through"],
  changed: ["±", "border-warn bg-warn-wash"],
} as const;

function StepCard({ data, step, fork }: { data: StepNodeData; step: Step; fork?: Fork }) {
  const { t } = useTranslation();
  // Counts how often this card was drawn: a test reads it.
  const draws = useRef(0);
  draws.current += 1;
  const cell = useCell(data.cells, step.id);
  const detail = useStore((state) => detailOf(state.transform[2]));
  const { colours, Shape } = useToken(cell?.token, cell?.icon);
  const Kind = KINDS[step.run] ?? Cog;
  const words = [
    step.name,
    cell?.label,
    cell?.short === cell?.label ? undefined : cell?.short,
    ...(cell?.facets ?? []),
    cell?.attempt,
    cell?.downstreamOfBlocker ? t("graph.held") : undefined,
    step.when ? t("graph.if", { condition: condition(step.when) }) : undefined,
    step.gate ? t("graph.gate", { who: step.approvers?.join(", ") ?? step.gate }) : undefined,
    step.optional ? t("graph.optional") : undefined,
    step.mark ? t(`definition.${step.mark}`) : undefined,
  ]
    .filter(Boolean)
    .join(" · ");
  const far = detail === "far";
  const border = data.selected
    ? "border-accent ring-2 ring-accent"
    : data.critical
      ? "border-ink"
      : step.mark
        ? MARKS[step.mark][1]
        : "border-line";
  return (
    <>
      {step.gate && !far && <Notch step={step} />}
      <button
        type="button"
        id={`step-${step.id}`}
        data-draws={draws.current}
        tabIndex={data.focusable ? 0 : -1}
        aria-label={words}
        title={cell?.short}
        aria-pressed={data.selected}
        onClick={() => data.onOpen(step.id)}
        onKeyDown={(event) => data.onKey(event, step.id)}
        style={{
          borderLeftColor: cell ? colours.line : undefined,
          ...(far && cell ? { backgroundColor: colours.bg, color: colours.fg } : {}),
        }}
        className={`pointer-events-auto flex h-14 w-[200px] flex-col justify-center overflow-hidden rounded-md border px-3 text-left ${cell ? "border-l-[3px]" : ""} ${border} ${
          step.run === "workflow" ? "outline outline-1 outline-offset-2 outline-field-line" : ""
        } ${step.optional || cell?.downstreamOfBlocker ? "border-dashed" : ""} ${far || step.mark ? "" : "bg-raised"} ${
          !far && cell && (cell.done || !cell.reached) ? "text-soft" : ""
        }`}
      >
        <span
          className={`flex items-center gap-2 ${far ? "text-[38px] leading-[44px]" : detail === "middle" ? "text-base" : "text-sm"} ${cell?.done && !far ? "" : "font-medium"}`}
        >
          {!far &&
            (cell ? (
              <Shape
                aria-hidden
                size={15}
                strokeWidth={2.5}
                className="shrink-0"
                style={{ color: colours.line }}
              />
            ) : (
              <Kind aria-hidden size={15} className="shrink-0 text-soft" />
            ))}
          {step.mark && <span aria-hidden>{MARKS[step.mark][0]}</span>}
          <span className="truncate">{step.name}</span>
          {cell && !far && <Kind aria-hidden size={13} className="ml-auto shrink-0 text-soft" />}
        </span>
        {detail === "near" && <Fact step={step} cell={cell} />}
      </button>
      {(data.cells ? cell?.child : step.workflow?.includes("@")) && data.onUnfold && !far && (
        <Unfold data={data} step={step} />
      )}
      {fork && !data.cells && !far && (
        <span className="absolute top-[19px] left-[202px] rounded bg-page px-0.5 text-[11px] font-medium text-soft">
          {fork}
        </span>
      )}
    </>
  );
}

/** Shows the steps of a sub-workflow behind its card, or hides them. */
function Unfold({ data, step }: { data: StepNodeData; step: Step }) {
  const { t } = useTranslation();
  const Icon = step.expanded ? ChevronsLeft : ChevronsRight;
  const words = t(step.expanded ? "graph.fold" : "graph.unfold", { step: step.name });
  return (
    <button
      type="button"
      tabIndex={data.focusable ? 0 : -1}
      aria-expanded={step.expanded ?? false}
      aria-label={words}
      title={words}
      onClick={() => data.onUnfold?.(step.id)}
      className="pointer-events-auto absolute top-[14px] left-[188px] z-10 flex size-7 items-center justify-center rounded-full border border-strong bg-raised text-accent hover:bg-accent-wash"
    >
      <Icon aria-hidden size={15} />
    </button>
  );
}

/** The fact that matters in this state. */
function Fact({ step, cell }: { step: Step; cell: ReturnType<typeof useCell> }) {
  const { t } = useTranslation();
  let parts: ReactNode[];
  if (!cell)
    parts = step.when
      ? [t("graph.if", { condition: condition(step.when) })]
      : [step.workflow ?? step.pic ?? (step.run === "worker" ? step.queue : step.run)];
  else if (cell.counts && cell.counts.length > 0) parts = [<Counts key="counts" counts={cell.counts} />];
  else
    parts = [
      cell.downstreamOfBlocker ? t("graph.held") : cell.label,
      cell.facets && cell.facets.length > 0 && <Facets key="facets" facets={cell.facets} />,
      cell.attempt,
      !cell.done && cell.deadline ? <Moment key="deadline" at={cell.deadline} /> : undefined,
      cell.pic && <Name key="pic" who={cell.pic} />,
    ];
  const shown = parts.filter(Boolean);
  return (
    <span className="truncate pl-[23px] text-xs text-soft">
      {shown.map((part, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the facts have a fixed order
        <span key={at}>
          {at > 0 && " · "}
          {part}
        </span>
      ))}
    </span>
  );
}

/** What it waits for besides what its label says. */
export function Facets({ facets }: { facets: string[] }) {
  return (
    <span className="inline-flex flex-wrap gap-1">
      {facets.map((facet) => (
        <span key={facet} className="rounded-full border border-field-line px-1.5 text-xs whitespace-nowrap">
          {facet}
        </span>
      ))}
    </span>
  );
}

const Name = ({ who }: { who: string }) => useName(who);

/** The gate before a step, with the initials of who decides it. */
function Notch({ step }: { step: Step }) {
  const first = step.approvers?.[0];
  const name = useName(first);
  const more = (step.approvers?.length ?? 0) - 1;
  return (
    <span
      aria-hidden
      title={step.approvers?.join(", ") ?? step.gate}
      className="absolute top-[17px] -left-[27px] flex h-[22px] min-w-[22px] items-center justify-center rounded-full border-[1.5px] border-accent bg-page px-0.5 text-[10px] font-semibold text-accent"
    >
      {first ? initials(name) : "✓"}
      {more > 0 && `+${more}`}
    </span>
  );
}

function Counts({ counts }: { counts: Count[] }) {
  return (
    <span className="inline-flex gap-2.5">
      {counts.map((one) => (
        <CountMark key={one.token} {...one} />
      ))}
    </span>
  );
}

function CountMark({ token, icon, words, count }: Count) {
  const { colours, Shape } = useToken(token, icon);
  return (
    <span className="tabular inline-flex items-center gap-1" title={`${count} ${words}`}>
      <Shape aria-hidden size={12} strokeWidth={2.5} style={{ color: colours.line }} />
      {count}
    </span>
  );
}

function GroupChip({ data, group }: { data: StepNodeData; group: Extract<Drawn, { kind: "group" }> }) {
  const { t } = useTranslation();
  useCellsVersion(data.cells);
  const far = useStore((state) => detailOf(state.transform[2]) === "far");
  const counts = new Map<string, Count>();
  for (const step of group.steps) {
    const cell = data.cells?.get(step.id);
    if (!cell) continue;
    const one = counts.get(cell.label) ?? { token: cell.token, icon: cell.icon, words: cell.label, count: 0 };
    one.count += 1;
    counts.set(cell.label, one);
  }
  const all = t("graph.steps", { count: group.steps.length });
  const summary = [...counts.values()].map((one) => `${one.count} ${one.words}`).join(", ") || all;
  return (
    <button
      type="button"
      id={`step-${group.id}`}
      tabIndex={data.focusable ? 0 : -1}
      aria-expanded={false}
      aria-label={`${group.category}: ${summary}`}
      title={summary}
      onClick={() => data.onOpen(group.id)}
      onKeyDown={(event) => data.onKey(event, group.id)}
      className="pointer-events-auto flex h-14 w-[200px] flex-col justify-center overflow-hidden rounded-md border border-strong bg-wash px-3 text-left outline outline-1 outline-offset-2 outline-field-line"
    >
      <span
        className={`flex items-center gap-2 font-medium ${far ? "text-[38px] leading-[44px]" : "text-sm"}`}
      >
        {!far && <Layers aria-hidden size={15} className="shrink-0 text-soft" />}
        <span className="truncate">{group.category}</span>
        {!far && <span className="ml-auto text-xs font-normal text-soft">{all}</span>}
      </span>
      {!far && counts.size > 0 && (
        <span className="pl-[23px] text-xs text-soft">
          <Counts counts={[...counts.values()].slice(0, 5)} />
        </span>
      )}
    </button>
  );
}
