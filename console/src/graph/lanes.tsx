// Quiet bands behind the steps, with their names at the left edge of what is visible.
import { useStore, ViewportPortal } from "@xyflow/react";
import { useTranslation } from "@/app/i18n";
import { useName } from "@/ui/person";
import type { Layout } from "./layout";

export function Lanes({ layout, people }: { layout: Layout; people: boolean }) {
  const { t } = useTranslation();
  const left = useStore((state) => -state.transform[0] / state.transform[2]);
  const zoom = useStore((state) => state.transform[2]);
  if (layout.bands.length < 2) return null;
  return (
    <ViewportPortal>
      {layout.bands.map((band, at) => (
        <div
          key={band.lane}
          style={{ left: -1e5, width: 2e5, top: band.y - 28, height: band.height + 42, zIndex: -1 }}
          className={`absolute ${at % 2 === 0 ? "bg-wash" : ""} contrast:border-t contrast:border-line`}
        >
          <span
            style={{ left: 1e5 + left + 10 / zoom, top: 4, transform: `scale(${1 / zoom})` }}
            className="absolute origin-top-left text-xs font-medium text-soft"
          >
            {band.lane === "" ? t("graph.noLane") : people ? <Name who={band.lane} /> : band.lane}
          </span>
        </div>
      ))}
    </ViewportPortal>
  );
}

const Name = ({ who }: { who: string }) => useName(who);
