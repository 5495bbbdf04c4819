// The graph as a list, for screen readers, phones and those who prefer lists. Rows are drawn when they come into view.
import { Stamp } from "lucide-react";
import { useRef } from "react";
import { useTranslation } from "@/app/i18n";
import { type Cells, useCell } from "@/graph/cells";
import type { Step } from "@/graph/model";
import { Facets } from "@/graph/step-node";
import { Person } from "@/ui/person";
import { useRows } from "@/ui/rows";
import { StateMark } from "@/ui/state";
import { Moment } from "@/ui/text";

export function Outline({
  steps,
  cells,
  selected,
  onSelect,
}: {
  steps: Step[];
  cells: Cells;
  selected?: string;
  onSelect: (id: string) => void;
}) {
  const { t } = useTranslation();
  const box = useRef<HTMLDivElement>(null);
  const names = new Map(steps.map((step) => [step.id, step.name]));
  const rows = useRows(box, steps.length, 44);
  return (
    <div ref={box} className="max-h-[min(75dvh,48rem)] overflow-auto border-t border-line">
      <ul aria-label={t("run.outline")} style={{ height: rows.height }} className="relative">
        {rows.shown.map((row) => {
          const step = steps[row.index];
          return (
            step && (
              <li
                key={step.id}
                data-row
                aria-setsize={steps.length}
                aria-posinset={row.index + 1}
                style={{ transform: `translateY(${row.start}px)`, height: row.height }}
                className="absolute inset-x-0 top-0 border-b border-line"
              >
                <OutlineRow
                  step={step}
                  cells={cells}
                  after={step.dependsOn.map((id) => names.get(id) ?? id).join(", ")}
                  selected={selected === step.id}
                  onSelect={onSelect}
                />
              </li>
            )
          );
        })}
      </ul>
    </div>
  );
}

function OutlineRow({
  step,
  cells,
  after,
  selected,
  onSelect,
}: {
  step: Step;
  cells: Cells;
  after: string;
  selected: boolean;
  onSelect: (id: string) => void;
}) {
  const { t } = useTranslation();
  const cell = useCell(cells, step.id);
  return (
    <button
      type="button"
      aria-pressed={selected}
      onClick={() => onSelect(step.id)}
      className="grid h-full w-full grid-cols-[2.5rem_1fr_10rem] items-center gap-3 px-1 text-left -outline-offset-2 hover:bg-wash aria-pressed:bg-accent-wash md:grid-cols-[2.5rem_1fr_1fr_8rem_12rem]"
    >
      <span className="tabular text-right text-xs text-soft">{Number(step.id) + 1}</span>
      <span className="flex min-w-0 items-center gap-2">
        <span className={`truncate ${cell?.done ? "text-soft" : "font-medium"}`}>{step.name}</span>
        {step.gate && <Stamp size={13} className="shrink-0 text-accent" aria-label={t("step.gates")} />}
      </span>
      <span className="hidden truncate text-xs text-soft md:inline">
        {after && t("outline.after", { steps: after })}
      </span>
      <span className="hidden truncate text-xs text-soft md:inline">
        {cell?.facets && cell.facets.length > 0 && <Facets facets={cell.facets} />}
        {cell?.pic ? <Person who={cell.pic} /> : cell?.attempt}
        {cell?.deadline && !cell.done && (
          <>
            {" "}
            <Moment at={cell.deadline} />
          </>
        )}
      </span>
      {cell && <StateMark token={cell.token} icon={cell.icon} words={cell.label} title={cell.short} />}
    </button>
  );
}
