// The mini-map: the colours of the states, and the part that is in view. A canvas, so that 500 steps cost one drawing.
import { Panel, useReactFlow, useStore } from "@xyflow/react";
import { useEffect, useRef } from "react";
import { useTranslation } from "@/app/i18n";
import { useTheme } from "@/app/theme";
import { coloursOf } from "@/ui/colour";
import { useRegistry } from "@/ui/state";
import { type Cells, useCellsVersion } from "./cells";
import { type Layout, NODE } from "./layout";
import type { Drawn } from "./model";

const MOST = { width: 200, height: 120, scale: 0.1 };
const KEYS: Record<string, [number, number]> = {
  ArrowRight: [1, 0],
  ArrowLeft: [-1, 0],
  ArrowDown: [0, 1],
  ArrowUp: [0, -1],
};

export function Overview({ layout, drawn, cells }: { layout: Layout; drawn: Drawn[]; cells?: Cells }) {
  const { t } = useTranslation();
  const canvas = useRef<HTMLCanvasElement>(null);
  const flow = useReactFlow();
  const theme = useTheme();
  const version = useCellsVersion(cells);
  const tokens = useRegistry().data?.tokens;
  const [x, y, zoom] = useStore((state) => state.transform);
  const [width, height] = [useStore((state) => state.width), useStore((state) => state.height)];
  const scale = Math.min(
    MOST.scale,
    MOST.width / Math.max(layout.width, 1),
    MOST.height / Math.max(layout.height, 1),
  );
  // As large as the graph needs: a small one is not hidden behind its own overview.
  const size = { width: Math.ceil(layout.width * scale), height: Math.ceil(layout.height * scale) };

  /** The arrow keys move the view by half of what is in view. */
  function move(event: React.KeyboardEvent) {
    const direction = KEYS[event.key];
    if (!direction) return;
    event.preventDefault();
    const [dx, dy] = direction;
    void flow.setViewport({ x: x - (dx * width) / 2, y: y - (dy * height) / 2, zoom }, { duration: 120 });
  }

  // biome-ignore lint/correctness/useExhaustiveDependencies: `version` and `theme` say that colours may have changed
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context) return;
    const style = getComputedStyle(document.documentElement);
    context.clearRect(0, 0, size.width, size.height);
    const byId = new Map(drawn.map((one) => [one.id, one]));
    for (const node of layout.nodes) {
      const one = byId.get(node.id);
      const cell = one?.kind === "step" ? cells?.get(node.id) : undefined;
      const token = tokens?.find((token) => token.token === cell?.token);
      context.fillStyle = token ? coloursOf(token, theme).line : style.getPropertyValue("--strong-line");
      context.fillRect(
        node.x * scale,
        node.y * scale,
        Math.max(2, NODE.width * scale),
        Math.max(2, NODE.height * scale),
      );
    }
    context.strokeStyle = style.getPropertyValue("--accent");
    context.lineWidth = 1.5;
    context.strokeRect(
      (-x / zoom) * scale,
      (-y / zoom) * scale,
      (width / zoom) * scale,
      (height / zoom) * scale,
    );
  }, [
    layout,
    drawn,
    cells,
    version,
    tokens,
    theme,
    x,
    y,
    zoom,
    width,
    height,
    scale,
    size.width,
    size.height,
  ]);

  return (
    <Panel position="bottom-right" className="hidden rounded-md border border-line bg-raised p-1.5 md:block">
      <button
        type="button"
        aria-label={t("graph.mapKeys")}
        onKeyDown={move}
        onPointerDown={(event) => {
          const box = event.currentTarget.getBoundingClientRect();
          void flow.setCenter((event.clientX - box.left) / scale, (event.clientY - box.top) / scale, {
            zoom,
            duration: 120,
          });
        }}
        className="block cursor-pointer"
      >
        <canvas ref={canvas} width={size.width} height={size.height} aria-hidden className="block" />
      </button>
    </Panel>
  );
}
