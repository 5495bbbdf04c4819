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

const SIZE = { width: 200, height: 120 };

export function Overview({ layout, drawn, cells }: { layout: Layout; drawn: Drawn[]; cells?: Cells }) {
  const { t } = useTranslation();
  const canvas = useRef<HTMLCanvasElement>(null);
  const flow = useReactFlow();
  const theme = useTheme();
  const version = useCellsVersion(cells);
  const tokens = useRegistry().data?.tokens;
  const [x, y, zoom] = useStore((state) => state.transform);
  const [width, height] = [useStore((state) => state.width), useStore((state) => state.height)];
  const scale = Math.min(SIZE.width / Math.max(layout.width, 1), SIZE.height / Math.max(layout.height, 1));

  // biome-ignore lint/correctness/useExhaustiveDependencies: `version` and `theme` say that colours may have changed
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context) return;
    const style = getComputedStyle(document.documentElement);
    context.clearRect(0, 0, SIZE.width, SIZE.height);
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
  }, [layout, drawn, cells, version, tokens, theme, x, y, zoom, width, height, scale]);

  return (
    <Panel position="bottom-right" className="hidden rounded-md border border-line bg-raised p-1.5 md:block">
      <canvas
        ref={canvas}
        width={SIZE.width}
        height={SIZE.height}
        aria-label={t("graph.overview")}
        role="img"
        onPointerDown={(event) => {
          const box = event.currentTarget.getBoundingClientRect();
          void flow.setCenter((event.clientX - box.left) / scale, (event.clientY - box.top) / scale, {
            zoom,
            duration: 120,
          });
        }}
        className="cursor-pointer"
      />
    </Panel>
  );
}
