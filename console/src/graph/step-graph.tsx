// The graph of a definition or a run, from 2 steps to 500 and more: one component, one code path.
import {
  Background,
  BaseEdge,
  type Edge,
  type EdgeProps,
  type Node,
  Panel,
  Position,
  ReactFlow,
  ReactFlowProvider,
  useReactFlow,
  useStore,
  ViewportPortal,
} from "@xyflow/react";
import { Maximize2, Minus, Plus } from "lucide-react";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { Button } from "@/ui/button";
import type { Cells } from "./cells";
import { type Layout, NODE, path } from "./layout";
import { drawn, type LaneBy, type Step } from "./model";
import { Overview } from "./overview";
import { StepNode, type StepNodeData } from "./step-node";
import { useLayout } from "./use-layout";

export interface StepGraphProps {
  steps: Step[];
  cells?: Cells;
  laneBy?: LaneBy;
  collapsed?: ReadonlySet<string>;
  onExpand?: (category: string) => void;
  selected?: string;
  onSelect?: (id: string) => void;
  critical?: ReadonlySet<string>;
  /** Edges that the run has taken are drawn strong. */
  label: string;
  /** Tests count renders with it. */
  onRender?: (id: string) => void;
}

const NODE_TYPES = { step: StepNode };
const EDGE_TYPES = { way: Way };
const NOTHING: ReadonlySet<string> = new Set();

type WayData = { path: string; label?: string; at?: [number, number]; critical: boolean };

function Way({ data }: EdgeProps & { data?: WayData }) {
  if (!data) return null;
  return (
    <BaseEdge
      path={data.path}
      label={data.label}
      labelX={data.at?.[0]}
      labelY={data.at?.[1]}
      labelStyle={{ fill: "var(--soft)", fontSize: 11 }}
      labelBgStyle={{ fill: "var(--page)" }}
      style={{
        stroke: data.critical ? "var(--ink)" : "var(--strong-line)",
        strokeWidth: data.critical ? 2 : 1.25,
      }}
    />
  );
}

export function StepGraph(props: StepGraphProps) {
  return (
    <ReactFlowProvider>
      <Drawing {...props} />
    </ReactFlowProvider>
  );
}

function Drawing({
  steps,
  cells,
  laneBy = "none",
  collapsed = NOTHING,
  onExpand,
  selected,
  onSelect,
  critical = NOTHING,
  label,
  onRender,
}: StepGraphProps) {
  const { t } = useTranslation();
  const shown = useMemo(() => drawn(steps, collapsed, laneBy), [steps, collapsed, laneBy]);
  const layout = useLayout(shown.items);
  const flow = useReactFlow();
  const [focus, setFocus] = useState<string>();
  const first = shown.drawn[0]?.id;

  const open = useCallback(
    (id: string) => {
      setFocus(id);
      if (id.startsWith("group:")) onExpand?.(id.slice("group:".length));
      else onSelect?.(id);
    },
    [onSelect, onExpand],
  );

  const show = useCallback(
    (id: string, at: Layout) => {
      const node = at.nodes.find((node) => node.id === id);
      if (!node) return;
      void flow.setCenter(node.x + NODE.width / 2, node.y + NODE.height / 2, {
        zoom: Math.max(flow.getZoom(), 0.8),
        duration: 120,
      });
    },
    [flow],
  );

  const placed = useRef<Layout>(undefined);
  placed.current = layout;
  const onKey = useCallback(
    (event: React.KeyboardEvent, id: string) => {
      const next = placed.current && neighbour(placed.current, id, event.key);
      if (!next || !placed.current) return;
      event.preventDefault();
      setFocus(next);
      show(next, placed.current);
      // The node may only now be mounted: it is drawn when it comes into view.
      requestAnimationFrame(() =>
        requestAnimationFrame(() => document.getElementById(`step-${next}`)?.focus()),
      );
    },
    [show],
  );

  const nodes = useMemo(
    () =>
      layout
        ? toNodes(layout, shown.drawn, {
            cells,
            selected,
            critical,
            focus: focus ?? first,
            onOpen: open,
            onKey,
            onRender,
          })
        : [],
    [layout, shown, cells, selected, critical, focus, first, open, onKey, onRender],
  );
  const edges = useMemo(() => (layout ? toEdges(layout, steps, critical) : []), [layout, steps, critical]);

  // A step that was chosen elsewhere (search, a link) comes into view.
  const centred = useRef<string>(undefined);
  useEffect(() => {
    if (!layout || !selected || centred.current === selected) return;
    centred.current = selected;
    show(selected, layout);
  }, [layout, selected, show]);

  if (!layout) return <div className="h-full min-h-64" />;
  return (
    <ReactFlow
      nodes={nodes}
      edges={edges}
      nodeTypes={NODE_TYPES}
      edgeTypes={EDGE_TYPES}
      onlyRenderVisibleElements
      minZoom={0.1}
      maxZoom={2}
      defaultViewport={start(layout)}
      nodesDraggable={false}
      nodesConnectable={false}
      nodesFocusable={false}
      edgesFocusable={false}
      elementsSelectable={false}
      disableKeyboardA11y
      panOnScroll={false}
      zoomOnDoubleClick={false}
      aria-label={label}
      proOptions={{ hideAttribution: false }}
    >
      <Background gap={24} color="var(--line)" />
      <Lanes layout={layout} />
      <Panel position="bottom-left" className="flex gap-1 rounded-md border border-line bg-raised p-1">
        <Button look="quiet" aria-label={t("graph.out")} onClick={() => void flow.zoomOut({ duration: 120 })}>
          <Minus aria-hidden size={16} />
        </Button>
        <Zoom />
        <Button look="quiet" aria-label={t("graph.in")} onClick={() => void flow.zoomIn({ duration: 120 })}>
          <Plus aria-hidden size={16} />
        </Button>
        <Button
          look="quiet"
          aria-label={t("graph.fit")}
          onClick={() => void flow.fitView({ duration: 120, padding: 0.05 })}
        >
          <Maximize2 aria-hidden size={16} />
        </Button>
      </Panel>
      {shown.drawn.length > 12 && <Overview layout={layout} drawn={shown.drawn} cells={cells} />}
    </ReactFlow>
  );
}

/** The beginning of the graph, at full size: most graphs are read from their beginning. */
function start(layout: Layout) {
  const height = layout.bands.length > 0 ? (layout.bands[0]?.height ?? 0) : NODE.height;
  return { x: 48, y: height < 400 ? 64 : 32, zoom: 1 };
}

function Zoom() {
  const zoom = useStore((state) => Math.round(state.transform[2] * 100));
  return <output className="tabular min-w-12 self-center text-center text-xs text-soft">{zoom} %</output>;
}

/** Quiet bands behind the steps, with their names at the left edge of what is visible. */
function Lanes({ layout }: { layout: Layout }) {
  const left = useStore((state) => -state.transform[0] / state.transform[2]);
  const zoom = useStore((state) => state.transform[2]);
  if (layout.bands.length < 2) return null;
  return (
    <ViewportPortal>
      {layout.bands.map((band, at) => (
        <div
          key={band.lane}
          style={{
            position: "absolute",
            left: -1e5,
            width: 2e5,
            top: band.y - 14,
            height: band.height + 28,
            zIndex: -1,
          }}
          className={at % 2 === 0 ? "bg-wash" : ""}
        >
          <span
            style={{
              position: "absolute",
              left: 1e5 + left + 8 / zoom,
              top: 0,
              transform: `scale(${1 / zoom})`,
              transformOrigin: "left top",
            }}
            className="text-xs font-medium text-soft"
          >
            {band.lane || "—"}
          </span>
        </div>
      ))}
    </ViewportPortal>
  );
}

type Given = Omit<StepNodeData, "drawn" | "selected" | "critical" | "focusable"> & {
  selected?: string;
  critical: ReadonlySet<string>;
  focus?: string;
};

function toNodes(layout: Layout, all: ReturnType<typeof drawn>["drawn"], given: Given): Node[] {
  const { selected, critical, focus, ...rest } = given;
  const byId = new Map(all.map((drawn) => [drawn.id, drawn]));
  return layout.nodes.flatMap(({ id, x, y }) => {
    const drawn = byId.get(id);
    if (!drawn) return [];
    const data: StepNodeData = {
      ...rest,
      drawn,
      selected: selected === id,
      critical: critical.has(id),
      focusable: focus === id,
    };
    // With size and handles given, React Flow measures nothing and mounts only what is in view.
    return {
      id,
      type: "step",
      position: { x, y },
      data,
      width: NODE.width,
      height: NODE.height,
      measured: { width: NODE.width, height: NODE.height },
      handles: [
        { type: "target", position: Position.Left, x: 0, y: NODE.height / 2, width: 1, height: 1 },
        { type: "source", position: Position.Right, x: NODE.width, y: NODE.height / 2, width: 1, height: 1 },
      ],
    } as Node;
  });
}

function toEdges(layout: Layout, steps: Step[], critical: ReadonlySet<string>): Edge[] {
  const conditions = new Map(steps.filter((step) => step.when).map((step) => [step.id, step.when]));
  return layout.routes.map((route): Edge => {
    const last = route.points.at(-1) ?? [0, 0];
    const data: WayData = {
      path: path(route.points),
      label: conditions.get(route.to),
      at: [last[0] - 28, last[1] - 10],
      critical: critical.has(route.from) && critical.has(route.to),
    };
    return { id: `${route.from}>${route.to}`, source: route.from, target: route.to, type: "way", data };
  });
}

/** The nearest step in the direction of an arrow key; the first and the last by Home and End. */
function neighbour(layout: Layout, id: string, key: string): string | undefined {
  if (key === "Home") return layout.nodes[0]?.id;
  if (key === "End") return layout.nodes.at(-1)?.id;
  const direction = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[key];
  const from = layout.nodes.find((node) => node.id === id);
  if (!direction || !from) return;
  const [dx, dy] = direction as [number, number];
  let best: { id: string; cost: number } | undefined;
  for (const node of layout.nodes) {
    const along = (node.x - from.x) * dx + (node.y - from.y) * dy;
    const across = Math.abs((node.x - from.x) * dy) + Math.abs((node.y - from.y) * dx);
    if (along <= 0) continue;
    const cost = along + across * 2;
    if (!best || cost < best.cost) best = { id: node.id, cost };
  }
  return best?.id;
}
