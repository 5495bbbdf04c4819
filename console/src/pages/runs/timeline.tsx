// How long each step took: bars on one axis, idle time compressed. Rows are drawn when they come into view.
import { useMemo, useRef } from "react";
import type { SchemaRunView } from "@/api/schema";
import { useTranslation } from "@/app/i18n";
import { Empty } from "@/ui/feedback";
import { useRows } from "@/ui/rows";
import { useToken } from "@/ui/state";
import { useNow } from "@/ui/text";
import { useTexts } from "@/ui/texts";
import { duration } from "@/ui/time";
import { type Gap, scale } from "./time-scale";

type Step = SchemaRunView["steps"][number];

export function Timeline({ run, onSelect }: { run: SchemaRunView; onSelect: (name: string) => void }) {
  const { t } = useTranslation();
  const box = useRef<HTMLDivElement>(null);
  const now = useNow();
  const end = run.ended_at ? Date.parse(run.ended_at) : now;
  const bars = useMemo(
    () =>
      run.steps
        .flatMap((step) => {
          const from = step.started_at ? Date.parse(step.started_at) : undefined;
          if (from === undefined) return [];
          const to = step.completed_at ? Date.parse(step.completed_at) : Math.max(end, from);
          return [{ step, from, to: Math.max(to, from) }];
        })
        .sort((a, b) => a.from - b.from),
    [run.steps, end],
  );
  const axis = useMemo(() => scale(bars), [bars]);
  const rows = useRows(box, bars.length, 36);
  if (bars.length === 0) return <Empty title={t("timeline.empty")}>{t("timeline.emptyWhy")}</Empty>;
  return (
    <div>
      <p className="mb-3 text-xs text-soft">
        {t("timeline.lead", {
          time: duration((bars.at(-1)?.to ?? 0) - (bars[0]?.from ?? 0)),
        })}{" "}
        {bars.length < run.steps.length && t("timeline.rest", { count: run.steps.length - bars.length })}
      </p>
      <div ref={box} className="max-h-[min(70dvh,44rem)] overflow-auto rounded-lg border border-line">
        <ul aria-label={t("run.timeline")} style={{ height: rows.height }} className="relative">
          {rows.shown.map((row) => {
            const bar = bars[row.index];
            return (
              bar && (
                <li
                  key={bar.step.name}
                  aria-setsize={bars.length}
                  aria-posinset={row.index + 1}
                  style={{ transform: `translateY(${row.start}px)`, height: row.height }}
                  className="absolute inset-x-0 top-0 border-b border-line last:border-0"
                >
                  <Bar
                    step={bar.step}
                    left={axis.place(bar.from)}
                    right={axis.place(bar.to)}
                    took={bar.to - bar.from}
                    gaps={axis.gaps}
                    onSelect={() => onSelect(bar.step.task_of ?? bar.step.name)}
                  />
                </li>
              )
            );
          })}
        </ul>
      </div>
    </div>
  );
}

function Bar({
  step,
  left,
  right,
  took,
  gaps,
  onSelect,
}: {
  step: Step;
  left: number;
  right: number;
  took: number;
  gaps: Gap[];
  onSelect: () => void;
}) {
  const { t } = useTranslation();
  const { colours, Shape } = useToken(step.appearance.color_token, step.appearance.icon);
  const words = useTexts()(step.appearance.label_key ?? "", step.appearance.args);
  const late = right > 0.8;
  return (
    <button
      type="button"
      onClick={onSelect}
      title={`${step.name}: ${words}, ${duration(took)}`}
      className="flex h-full w-full items-center gap-3 px-3 text-left text-sm -outline-offset-2 hover:bg-wash"
    >
      <span className="flex w-32 shrink-0 items-center gap-2 sm:w-56">
        <Shape aria-hidden size={14} strokeWidth={2.5} className="shrink-0" style={{ color: colours.line }} />
        <span className="truncate">{step.name}</span>
        <span className="sr-only">{words}</span>
      </span>
      <span className="relative h-full min-w-0 flex-1">
        {gaps.map((gap) => (
          <span
            key={gap.from}
            aria-hidden
            title={t("timeline.idle", { time: duration(gap.to - gap.from) })}
            style={{ left: `${gap.at * 100}%`, width: `${gap.width * 100}%` }}
            className="absolute inset-y-0 flex items-center justify-center border-x border-dashed border-field-line text-xs text-soft"
          >
            ⋯
          </span>
        ))}
        <span
          aria-hidden
          style={{
            left: `${left * 100}%`,
            width: `max(4px, ${(right - left) * 100}%)`,
            backgroundColor: colours.line,
          }}
          className="absolute top-1/2 h-2 -translate-y-1/2 rounded-sm"
        />
        <span
          style={late ? { right: `${(1 - left) * 100}%` } : { left: `${right * 100}%` }}
          className="tabular absolute top-1/2 -translate-y-1/2 bg-page px-2 text-xs whitespace-nowrap text-soft"
        >
          {duration(took)}
        </span>
      </span>
    </button>
  );
}
