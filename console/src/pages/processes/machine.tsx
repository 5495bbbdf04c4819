// A process as its states and transitions, with the way that it has taken.
import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import type { SchemaWorkflowView } from "@/api/schema";
import { layout, path } from "@/graph/layout";

export interface MachineShape {
  states: string[];
  transitions: { from: string; action: string; to: string; guard?: string | null }[];
  initial: string;
  terminal: string[];
}

export function StateMachine({ process }: { process: SchemaWorkflowView }) {
  const { declaration } = process;
  const travelled = new Set(
    (process.transition_history ?? []).map((entry) => `${entry.from_state}>${entry.action}`),
  );
  return (
    <MachineDrawing
      shape={{
        states: declaration.states ?? [],
        transitions: (declaration.transitions ?? []).map((move) => ({
          from: move.from ?? "",
          action: move.action ?? "",
          to: move.to ?? "",
          guard: move.guard,
        })),
        initial: declaration.initial_state ?? "",
        terminal: declaration.terminal_states ?? [],
      }}
      current={process.current_state}
      travelled={travelled}
    />
  );
}

/** States in columns by their distance from the beginning; moves that lead back are drawn below. */
export function MachineDrawing({
  shape,
  current,
  travelled,
}: {
  shape: MachineShape;
  current?: string;
  travelled?: ReadonlySet<string>;
}) {
  const { t } = useTranslation();
  const placed = useMemo(() => place(shape), [shape]);
  const width = Math.max(...placed.nodes.map((node) => node.x)) + BOX.width + 24;
  const bottom = Math.max(...placed.nodes.map((node) => node.y)) + BOX.height;
  const height = bottom + 16 + placed.back.size * 24;
  const at = new Map(placed.nodes.map((node) => [node.id, node]));
  let loop = 0;
  return (
    <div className="overflow-x-auto rounded-lg border border-line p-5">
      <svg
        width={width}
        height={height}
        viewBox={`-10 -14 ${width} ${height + 14}`}
        role="img"
        aria-label={t("process.diagram", { state: current ?? shape.initial })}
      >
        <title>{t("process.diagram", { state: current ?? shape.initial })}</title>
        <defs>
          <marker
            id="arrow"
            viewBox="0 0 8 8"
            refX="7"
            refY="4"
            markerWidth="7"
            markerHeight="7"
            orient="auto-start-reverse"
          >
            <path d="M0,0 L8,4 L0,8 z" fill="var(--strong-line)" />
          </marker>
        </defs>
        {shape.transitions.map((move) => {
          const [from, to] = [at.get(move.from), at.get(move.to)];
          if (!from || !to) return null;
          const taken = travelled?.has(`${move.from}>${move.action}`);
          const backwards = placed.back.has(`${move.from}>${move.action}`);
          if (backwards) loop += 1;
          const under = bottom + loop * 24 - 6;
          const trunk = to.x - 26 - (to.y < from.y ? 10 : 0);
          const points: [number, number][] = backwards
            ? [
                [from.x + BOX.width / 2, from.y + BOX.height],
                [from.x + BOX.width / 2, under],
                [to.x + BOX.width / 2 + loop * 7, under],
                [to.x + BOX.width / 2 + loop * 7, to.y + BOX.height + 1],
              ]
            : from.y === to.y && to.x - from.x <= BOX.column
              ? [
                  [from.x + BOX.width, from.y + 20],
                  [to.x - 1, to.y + 20],
                ]
              : [
                  [from.x + BOX.width, from.y + (to.y > from.y ? 30 : 10)],
                  [trunk, from.y + (to.y > from.y ? 30 : 10)],
                  [trunk, to.y + 20],
                  [to.x - 1, to.y + 20],
                ];
          const label: [number, number] = backwards
            ? [(from.x + to.x + BOX.width) / 2, under - 4]
            : from.y === to.y
              ? [(from.x + BOX.width + to.x) / 2, from.y + 14]
              : [from.x + BOX.width + 8 + move.action.length * 3, from.y + (to.y > from.y ? 44 : 4)];
          return (
            <g key={`${move.from}>${move.action}`}>
              <path
                d={path(points)}
                fill="none"
                stroke={taken ? "var(--ink)" : "var(--strong-line)"}
                strokeWidth={taken ? 2.25 : 1.25}
                strokeDasharray={move.guard ? "5 3" : undefined}
                markerEnd="url(#arrow)"
              />
              <text
                x={label[0]}
                y={label[1]}
                textAnchor="middle"
                fontSize="11"
                fill="var(--soft)"
                stroke="var(--page)"
                strokeWidth="4"
                paintOrder="stroke"
              >
                {move.action}
                {move.guard ? " ✓" : ""}
              </text>
            </g>
          );
        })}
        {placed.nodes.map((node) => {
          const now = node.id === current;
          return (
            <g key={node.id}>
              <rect
                x={node.x}
                y={node.y}
                width={BOX.width}
                height={BOX.height}
                rx={shape.terminal.includes(node.id) ? 20 : 6}
                fill={now ? "var(--accent-wash)" : "var(--raised)"}
                stroke={now ? "var(--accent)" : "var(--strong-line)"}
                strokeWidth={now ? 2.5 : 1.25}
              />
              <text
                x={node.x + BOX.width / 2}
                y={node.y + 25}
                textAnchor="middle"
                fontSize="13"
                fontWeight={now ? 700 : 500}
                fill="var(--ink)"
              >
                {node.id.length > 20 ? `${node.id.slice(0, 19)}…` : node.id}
              </text>
            </g>
          );
        })}
      </svg>
      <p className="mt-2 text-xs text-soft">{t("process.legend")}</p>
    </div>
  );
}

const BOX = { width: 150, height: 40, column: 280, row: 76 } as const;

/** Columns by the longest way from the beginning. A move to a state that is on the way to its own beginning leads back. */
export function place(shape: MachineShape) {
  const back = new Set<string>();
  const on = new Set<string>();
  const seen = new Set<string>();
  const walk = (state: string) => {
    on.add(state);
    seen.add(state);
    for (const move of shape.transitions.filter((move) => move.from === state)) {
      if (on.has(move.to)) back.add(`${move.from}>${move.action}`);
      else if (!seen.has(move.to)) walk(move.to);
    }
    on.delete(state);
  };
  for (const state of [shape.initial, ...shape.states]) if (!seen.has(state)) walk(state);
  const forward = shape.transitions.filter((move) => !back.has(`${move.from}>${move.action}`));
  const items = shape.states.map((state) => ({
    id: state,
    lane: "",
    dependsOn: [...new Set(forward.filter((move) => move.to === state).map((move) => move.from))],
  }));
  const placed = layout(items).nodes;
  const [columns, rows] = [
    [...new Set(placed.map((node) => node.x))].sort((a, b) => a - b),
    [...new Set(placed.map((node) => node.y))].sort((a, b) => a - b),
  ];
  const nodes = placed.map((node) => ({
    id: node.id,
    x: columns.indexOf(node.x) * BOX.column,
    y: rows.indexOf(node.y) * BOX.row,
  }));
  return { nodes, back };
}
