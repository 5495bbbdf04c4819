// A state: colour, icon and words, always together. Colours, icons and words come from the registry, never from here.
import { useQuery } from "@tanstack/react-query";
import {
  ArrowRightToLine,
  Ban,
  Check,
  Circle,
  ClockAlert,
  Eye,
  Hourglass,
  type LucideIcon,
  Octagon,
  OctagonX,
  Pause,
  Pencil,
  Play,
  Redo2,
  Square,
  TriangleAlert,
  Undo2,
  X,
} from "lucide-react";
import { api, body } from "@/api/client";
import { useTheme } from "@/app/theme";
import { type Colours, coloursOf } from "./colour";

/** The icons and shapes that the registry names, as drawings. */
const DRAWINGS: Record<string, LucideIcon> = {
  "○": Circle,
  "▶": Play,
  "►": Play,
  "⏳": Hourglass,
  "⚠": TriangleAlert,
  "⏰": ClockAlert,
  "✕": X,
  "⛔": OctagonX,
  "✓": Check,
  "⤼": Redo2,
  "⊘": Ban,
  "⌀": Ban,
  "⏸": Pause,
  "⏹": Square,
  "↩": Undo2,
  "✎": Pencil,
  "👁": Eye,
  "⇥": ArrowRightToLine,
  circle_hollow: Circle,
  triangle_outline: Play,
  triangle_filled: Play,
  check_filled: Check,
  hourglass: Hourglass,
  warn_filled: TriangleAlert,
  clock_alert: ClockAlert,
  cross_filled: X,
  stop_filled: Octagon,
};

export function useRegistry() {
  return useQuery({
    queryKey: ["registry"],
    queryFn: () => body(api.GET("/v1/registry")),
    staleTime: Number.POSITIVE_INFINITY,
  });
}

export function useToken(name: string | undefined, icon?: string): { colours: Colours; Shape: LucideIcon } {
  const theme = useTheme();
  const registry = useRegistry();
  const token = registry.data?.tokens.find((token) => token.token === name);
  return {
    colours: coloursOf(token, theme),
    Shape: DRAWINGS[icon ?? ""] ?? DRAWINGS[token?.shape_token ?? ""] ?? Circle,
  };
}

interface Shown {
  token: string;
  words: string;
  icon?: string;
  title?: string;
}

export function StateChip({ token, words, icon, title }: Shown) {
  const { colours, Shape } = useToken(token, icon);
  return (
    <span
      title={title}
      style={{ color: colours.fg, backgroundColor: colours.bg }}
      className="inline-flex max-w-full items-center gap-1.5 rounded-full px-2.5 py-0.5 text-xs font-medium contrast:border contrast:border-current"
    >
      <Shape aria-hidden size={13} strokeWidth={2.5} className="shrink-0" />
      <span className="truncate">{words}</span>
    </span>
  );
}

/** A state in a list: a coloured icon and plain words. A list of filled chips would shout. */
export function StateMark({ token, words, icon, title }: Shown) {
  const { colours, Shape } = useToken(token, icon);
  return (
    <span title={title} className="inline-flex max-w-full items-center gap-2 align-top">
      <Shape aria-hidden size={15} strokeWidth={2.5} className="shrink-0" style={{ color: colours.line }} />
      <span className="truncate">{words}</span>
    </span>
  );
}
