// Quiet bands behind the steps, with their names at the left edge of what is visible.
import { useStore, ViewportPortal } from "@xyflow/react";
import { useTranslation } from "@/app/i18n";
import { useName } from "@/ui/person";
import type { Layout } from "./layout";
import type { LaneBy } from "./model";

export function Lanes({ layout, by }: { layout: Layout; by: LaneBy }) {
  const { t } = useTranslation();
  const left = useStore((state) => -state.transform[0] / state.transform[2]);
  const zoom = useStore((state) => state.transform[2]);
  if (new Set(layout.bands.map((band) => band.lane)).size < 2) return null;
  const name = (lane: string) => {
    if (by === "parallel") return t("graph.branch", { number: Number(lane) + 1 });
    if (lane === "") return t("graph.noLane");
    return by === "pic" ? <Name who={lane} /> : lane;
  };
  return (
    <ViewportPortal>
      {layout.bands.map((band, at) => (
        <div
          key={band.y}
          style={{ left: -1e5, width: 2e5, top: band.y - 28, height: band.height + 42, zIndex: -1 }}
          className={`absolute ${at % 2 === 0 ? "bg-wash" : ""} contrast:border-t contrast:border-line`}
        >
          <span
            style={{ left: 1e5 + left + 10 / zoom, top: 4, transform: `scale(${1 / zoom})` }}
            className="absolute origin-top-left text-xs font-medium text-soft"
          >
            {name(band.lane)}
          </span>
        </div>
      ))}
    </ViewportPortal>
  );
}

const Name = ({ who }: { who: string }) => useName(who);
