// The graph of a definition or a run, from 2 steps to 500 and more: one component, one code path.
import {
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
} from "@xyflow/react";
import { Maximize2, Minus, Plus } from "lucide-react";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { useTranslation } from "@/app/i18n";
import { Button } from "@/ui/button";
import { type Cells, useCell } from "./cells";
import { Lanes } from "./lanes";
import { type Layout, NODE, path } from "./layout";
import { type Drawn, drawn, type LaneBy, type Step } from "./model";
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
  /** Shows or hides the steps of a sub-workflow. */
  onUnfold?: (id: string) => void;
  /** In view when the graph opens: where things happen. */
  start?: string;
  critical?: ReadonlySet<string>;
  label: string;
}

const NODE_TYPES = { step: StepNode };
const EDGE_TYPES = { way: Way };
const NOTHING: ReadonlySet<string> = new Set();
const ZOOM = { min: 0.25, max: 2 } as const;
/** The names of steps are large enough from here on. */
const READABLE = 0.55;

type WayData = {
  path: string;
  /** What is written on it: the step that it leads to has a condition, or has none where others of the fork have. */
  word?: "when" | "always";
  at: [number, number];
  critical: boolean;
  cells?: Cells;
};

/** An edge: strong where the run has passed, dashed in a warning colour behind what holds it up. */
function Way({ data, source, target }: EdgeProps & { data?: WayData }) {
  const { t } = useTranslation();
  const from = useCell(data?.cells, source);
  const to = useCell(data?.cells, target);
  if (!data) return null;
  const taken = from?.done && to?.reached;
  const held = to?.downstreamOfBlocker;
  return (
    <BaseEdge
      path={data.path}
      label={data.word ? t(`graph.${data.word}`) : undefined}
      labelX={data.at[0]}
      labelY={data.at[1]}
      labelStyle={{ fill: "var(--soft)", fontSize: 11 }}
      labelBgStyle={{ fill: "var(--page)" }}
      labelBgPadding={[3, 1]}
      style={{
        stroke: held
          ? "var(--warn)"
          : data.critical
            ? "var(--ink)"
            : taken
              ? "var(--soft)"
              : "var(--field-line)",
        strokeWidth: data.critical ? 2.5 : taken ? 2 : 1.25,
        strokeDasharray: held ? "5 4" : undefined,
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
  laneBy = "parallel",
  collapsed = NOTHING,
  onExpand,
  selected,
  onSelect,
  onUnfold,
  start,
  critical = NOTHING,
  label,
}: StepGraphProps) {
  const { t } = useTranslation();
  const shown = useMemo(() => drawn(steps, collapsed, laneBy), [steps, collapsed, laneBy]);
  const layout = useLayout(shown.items);
  const flow = useReactFlow();
  const box = useRef<HTMLDivElement>(null);
  const [focus, setFocus] = useState<string>();
  const first = shown.drawn[0]?.id;

  // Callers give new functions with every render; the steps must not be drawn anew for that.
  const latest = useRef({ onSelect, onExpand, onUnfold });
  latest.current = { onSelect, onExpand, onUnfold };
  const open = useCallback((id: string) => {
    setFocus(id);
    if (id.startsWith("group:")) latest.current.onExpand?.(id.slice("group:".length));
    else latest.current.onSelect?.(id);
  }, []);
  const unfold = useCallback((id: string) => {
    setFocus(id);
    latest.current.onUnfold?.(id);
  }, []);

  /** Moves a step into view, if it is not. */
  const show = useCallback(
    (id: string, at: Layout) => {
      const node = at.nodes.find((node) => node.id === id);
      const size = box.current;
      if (!node || !size) return;
      const { x, y, zoom } = flow.getViewport();
      const [left, top] = [node.x * zoom + x, node.y * zoom + y];
      const inside =
        left >= 8 &&
        top >= 8 &&
        left + NODE.width * zoom <= size.clientWidth - 8 &&
        top + NODE.height * zoom <= size.clientHeight - 8;
      if (inside && zoom >= 0.6) return;
      void flow.setCenter(node.x + NODE.width / 2, node.y + NODE.height / 2, {
        zoom: Math.max(zoom, 0.8),
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
      focusWhenDrawn(`step-${next}`);
    },
    [show],
  );
  useZoomKeys(flow);

  const canUnfold = onUnfold !== undefined;
  const nodes = useMemo(
    () =>
      layout
        ? toNodes(layout, shown.drawn, {
            cells,
            selected,
            critical,
            focus: focus ?? selected ?? start ?? first,
            onOpen: open,
            onUnfold: canUnfold ? unfold : undefined,
            onKey,
          })
        : [],
    [layout, shown, cells, selected, critical, focus, start, first, open, canUnfold, unfold, onKey],
  );
  const edges = useMemo(
    () => (layout ? toEdges(layout, shown.drawn, steps, critical, cells) : []),
    [layout, shown, steps, critical, cells],
  );

  // A step that was chosen elsewhere (search, a link) comes into view, once the drawer has taken its room.
  const centred = useRef<string>(undefined);
  useEffect(() => {
    if (!layout || !selected || centred.current === selected) return;
    centred.current = selected;
    const timer = setTimeout(() => show(selected, layout), 50);
    return () => clearTimeout(timer);
  }, [layout, selected, show]);

  const height = layout ? heightOf(layout) : 260;
  return (
    <div ref={box} style={{ height }} className="overflow-hidden rounded-lg border border-line">
      {layout && (
        <ReactFlow
          nodes={nodes}
          edges={edges}
          nodeTypes={NODE_TYPES}
          edgeTypes={EDGE_TYPES}
          onlyRenderVisibleElements
          minZoom={ZOOM.min}
          maxZoom={ZOOM.max}
          defaultViewport={opening(layout, box.current, selected ?? start)}
          nodesDraggable={false}
          nodesConnectable={false}
          nodesFocusable={false}
          edgesFocusable={false}
          elementsSelectable={false}
          disableKeyboardA11y
          zoomOnDoubleClick={false}
          aria-label={label}
        >
          <Lanes layout={layout} by={laneBy} />
          <Panel
            position="bottom-left"
            className="flex items-center rounded-md border border-line bg-raised p-0.5"
          >
            <Button
              look="quiet"
              small
              aria-label={t("graph.out")}
              onClick={() => void flow.zoomOut({ duration: 120 })}
            >
              <Minus aria-hidden size={16} />
            </Button>
            <Zoom />
            <Button
              look="quiet"
              small
              aria-label={t("graph.in")}
              onClick={() => void flow.zoomIn({ duration: 120 })}
            >
              <Plus aria-hidden size={16} />
            </Button>
            <Button
              look="quiet"
              small
              aria-label={t("graph.fit")}
              onClick={() => void flow.fitView({ duration: 120, padding: 0.05 })}
            >
              <Maximize2 aria-hidden size={15} />
            </Button>
          </Panel>
          <Overview layout={layout} drawn={shown.drawn} cells={cells} />
        </ReactFlow>
      )}
    </div>
  );
}

/** A node is drawn when it comes into view, which may be some frames from now. */
function focusWhenDrawn(id: string, tries = 30) {
  const node = document.getElementById(id);
  if (node) node.focus();
  else if (tries > 0) requestAnimationFrame(() => focusWhenDrawn(id, tries - 1));
}

/** `+`, `-` and `0` zoom, wherever the focus is but in a field. */
function useZoomKeys(flow: ReturnType<typeof useReactFlow>) {
  useEffect(() => {
    function pressed(event: KeyboardEvent) {
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      if (event.target instanceof Element && event.target.closest("input, textarea, select")) return;
      if (event.key === "+" || event.key === "=") void flow.zoomIn({ duration: 120 });
      else if (event.key === "-") void flow.zoomOut({ duration: 120 });
      else if (event.key === "0") void flow.fitView({ duration: 120, padding: 0.05 });
    }
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [flow]);
}

/** As high as the graph, and at most what a screen has room for. */
function heightOf(layout: Layout): number {
  return Math.min(Math.max(260, layout.height + 150), Math.max(384, innerHeight - 300));
}

/** All of a graph that fits, centred; otherwise the step where things happen, or the beginning, at full size. */
function opening(layout: Layout, box: HTMLDivElement | null, at: string | undefined) {
  const [width, height] = [box?.clientWidth ?? 900, heightOf(layout)];
  const room = { x: width - 96, y: height - 96 };
  // Shown whole as long as it can be read.
  const zoom = Math.min(1, Math.max(READABLE, Math.min(room.x / layout.width, room.y / layout.height)));
  if (layout.width * zoom <= room.x && layout.height * zoom <= room.y)
    return { x: 48, y: Math.max(40, (height - layout.height * zoom) / 2 - 24), zoom };
  const node = layout.nodes.find((node) => node.id === at) ?? layout.nodes[0];
  if (!node) return { x: 48, y: 48, zoom: 1 };
  const fits = layout.height <= room.y;
  return {
    x: Math.min(48, width / 2 - node.x - NODE.width / 2),
    y: fits ? Math.max(40, (height - layout.height) / 2 - 24) : Math.min(48, height / 2 - node.y),
    zoom: 1,
  };
}

function Zoom() {
  const zoom = useStore((state) => Math.round(state.transform[2] * 100));
  return <output className="tabular min-w-12 text-center text-xs text-soft">{zoom} %</output>;
}

type Given = Omit<StepNodeData, "drawn" | "selected" | "critical" | "focusable"> & {
  selected?: string;
  critical: ReadonlySet<string>;
  focus?: string;
};

function toNodes(layout: Layout, all: Drawn[], given: Given): Node[] {
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

function toEdges(
  layout: Layout,
  all: Drawn[],
  steps: Step[],
  critical: ReadonlySet<string>,
  cells?: Cells,
): Edge[] {
  const conditional = new Set(steps.filter((step) => step.when).map((step) => step.id));
  const mixed = new Set(all.flatMap((one) => (one.kind === "step" && one.fork === "AND/OR" ? [one.id] : [])));
  return layout.routes.map((route): Edge => {
    const last = route.points.at(-1) ?? [0, 0];
    const data: WayData = {
      path: path(route.points),
      word: conditional.has(route.to) ? "when" : mixed.has(route.from) ? "always" : undefined,
      at: [last[0] - 16, last[1]],
      critical: critical.has(route.from) && critical.has(route.to),
      cells,
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
