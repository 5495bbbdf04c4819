// A process as its states and transitions, with the way that it has taken.
import { useMemo } from "react";
import type { SchemaWorkflowView } from "@/api/schema";
import { useTranslation } from "@/app/i18n";
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
  const passed = new Set([...(travelled ?? [])].map((way) => way.split(">")[0]));
  const width = Math.max(...placed.nodes.map((node) => node.x)) + BOX.width + 24;
  const bottom = Math.max(...placed.nodes.map((node) => node.y)) + BOX.height;
  const at = new Map(placed.nodes.map((node) => [node.id, node]));
  const ways = routes(shape, placed, at, bottom);
  const lowest = Math.max(bottom, ...ways.flatMap((way) => way.points.map(([, y]) => y)));
  const height = lowest + 16;
  return (
    <div className="overflow-x-auto rounded-lg border border-line px-5 pt-6 pb-4">
      <svg
        viewBox={`-4 -14 ${width} ${height + 14}`}
        // As large as its letters are readable, and never larger than drawn.
        style={{ width: "100%", minWidth: width * 0.8, maxWidth: width }}
        role="img"
        aria-label={t("process.diagram", { state: current ?? shape.initial })}
      >
        <title>{t("process.diagram", { state: current ?? shape.initial })}</title>
        <defs>
          {(["arrow", "taken"] as const).map((id) => (
            <marker
              key={id}
              id={id}
              viewBox="0 0 8 8"
              refX="7"
              refY="4"
              markerUnits="userSpaceOnUse"
              markerWidth="9"
              markerHeight="9"
              orient="auto-start-reverse"
            >
              <path d="M0,0 L8,4 L0,8 z" fill={id === "taken" ? "var(--accent)" : "var(--strong-line)"} />
            </marker>
          ))}
        </defs>
        {ways.map(({ move, points, label }) => {
          const taken = travelled?.has(`${move.from}>${move.action}`);
          return (
            <g key={`${move.from}>${move.action}`}>
              <path
                d={path(points)}
                fill="none"
                stroke={taken ? "var(--accent)" : "var(--strong-line)"}
                strokeWidth={taken ? 2.25 : 1.25}
                strokeDasharray={move.guard && !taken ? "5 3" : undefined}
                markerEnd={taken ? "url(#taken)" : "url(#arrow)"}
              />
              <text
                x={label[0]}
                y={label[1]}
                fontSize="11"
                fill={taken ? "var(--ink)" : "var(--soft)"}
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
          const been = now || passed.has(node.id);
          return (
            <g key={node.id}>
              <title>{node.id}</title>
              <rect
                x={node.x}
                y={node.y}
                width={BOX.width}
                height={BOX.height}
                rx={shape.terminal.includes(node.id) ? 20 : 6}
                fill={now ? "var(--accent-wash)" : "var(--raised)"}
                stroke={been ? "var(--accent)" : "var(--strong-line)"}
                strokeWidth={now ? 2.5 : been ? 1.75 : 1.25}
              />
              <text
                x={node.x + BOX.width / 2}
                y={node.y + 25}
                textAnchor="middle"
                fontSize="13"
                fontWeight={now ? 700 : 500}
                fill="var(--ink)"
              >
                {shortened(node.id, now ? 17 : 19)}
              </text>
            </g>
          );
        })}
      </svg>
      <p className="mt-2 text-xs text-soft">
        {t("process.legend")} {travelled && t("process.legendPath")}
      </p>
    </div>
  );
}

const shortened = (name: string, most: number) => (name.length > most ? `${name.slice(0, most - 1)}…` : name);

const BOX = { width: 150, height: 40, column: 270, row: 96 } as const;

interface Way {
  move: MachineShape["transitions"][number];
  points: [number, number][];
  label: [number, number];
}

/** Straight to the next column; below the row where a move passes other states; below everything where it leads back. */
function routes(
  shape: MachineShape,
  placed: ReturnType<typeof place>,
  at: Map<string, { x: number; y: number }>,
  bottom: number,
): Way[] {
  let back = 0;
  const channels = new Map<number, number>();
  return shape.transitions.flatMap((move): Way[] => {
    const [from, to] = [at.get(move.from), at.get(move.to)];
    if (!from || !to) return [];
    const right = from.x + BOX.width;
    const middle = BOX.height / 2;
    if (placed.back.has(`${move.from}>${move.action}`)) {
      back += 1;
      const under = bottom + 8 + back * 22;
      const [start, end] = [from.x + BOX.width / 2, to.x + BOX.width / 2 + back * 8];
      return [
        {
          move,
          points: [
            [start, from.y + BOX.height],
            [start, under],
            [end, under],
            [end, to.y + BOX.height + 1],
          ],
          label: [Math.min(start, end) + 12, under - 4],
        },
      ];
    }
    const next = to.x - from.x <= BOX.column;
    if (next && from.y === to.y)
      return [
        {
          move,
          points: [
            [right, from.y + middle],
            [to.x - 1, to.y + middle],
          ],
          label: [right + 10, from.y + middle - 6],
        },
      ];
    // Each move below a row has a line of its own.
    const lane = channels.get(from.y) ?? 0;
    const trunk = to.x - 22 - (to.y < from.y ? 8 : 0);
    if (next) {
      const leave = from.y + (to.y > from.y ? BOX.height - 8 : 8);
      return [
        {
          move,
          points: [
            [right, leave],
            [trunk, leave],
            [trunk, to.y + middle],
            [to.x - 1, to.y + middle],
          ],
          label: [right + 10, leave + (to.y > from.y ? 13 : -5)],
        },
      ];
    }
    channels.set(from.y, lane + 1);
    const under = from.y + BOX.height + 20 + lane * 14;
    const start = from.x + BOX.width - 24 - lane * 10;
    return [
      {
        move,
        points: [
          [start, from.y + BOX.height],
          [start, under],
          [trunk, under],
          [trunk, to.y + middle],
          [to.x - 1, to.y + middle],
        ],
        label: [right + 10, under - 4],
      },
    ];
  });
}

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
