// The graph as a list, for screen readers, phones and those who prefer lists. Rows are drawn when they come into view.
import { useVirtualizer } from "@tanstack/react-virtual";
import { useRef } from "react";
import { useTranslation } from "react-i18next";
import { type Cells, useCell } from "@/graph/cells";
import type { Step } from "@/graph/model";
import { StateChip } from "@/ui/state";

export function Outline({
  steps,
  cells,
  onSelect,
}: {
  steps: Step[];
  cells: Cells;
  onSelect: (id: string) => void;
}) {
  const { t } = useTranslation();
  const box = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({
    count: steps.length,
    getScrollElement: () => box.current,
    estimateSize: () => 44,
    overscan: 8,
  });
  return (
    <div ref={box} className="mt-3 h-[min(70dvh,44rem)] overflow-auto">
      <ul aria-label={t("run.outline")} style={{ height: rows.getTotalSize() }} className="relative">
        {rows.getVirtualItems().map((row) => {
          const step = steps[row.index];
          return (
            step && (
              <li
                key={step.id}
                aria-setsize={steps.length}
                aria-posinset={row.index + 1}
                style={{ transform: `translateY(${row.start}px)`, height: row.size }}
                className="absolute inset-x-0 top-0 border-b border-line"
              >
                <OutlineRow step={step} cells={cells} onSelect={onSelect} />
              </li>
            )
          );
        })}
      </ul>
    </div>
  );
}

function OutlineRow({ step, cells, onSelect }: { step: Step; cells: Cells; onSelect: (id: string) => void }) {
  const cell = useCell(cells, step.id);
  return (
    <button
      type="button"
      onClick={() => onSelect(step.id)}
      className="flex h-full w-full items-center gap-3 px-1 text-left hover:bg-wash"
    >
      <span className="tabular w-10 text-right text-xs text-soft">{Number(step.id) + 1}</span>
      <span className="min-w-0 flex-1 truncate font-medium">{step.name}</span>
      <span className="hidden text-xs text-soft sm:inline">{cell?.fact}</span>
      {cell && <StateChip token={cell.token} words={cell.label} />}
    </button>
  );
}
