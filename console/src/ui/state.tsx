// A state: colour, icon and words, always together. Colours, shapes and words come from the registry, never from here.
import { useQuery } from "@tanstack/react-query";
import {
  Ban,
  Check,
  Circle,
  ClockAlert,
  Hourglass,
  type LucideIcon,
  Octagon,
  Play,
  TriangleAlert,
  X,
} from "lucide-react";
import { api, body } from "@/api/client";
import type { SchemaTokenDef } from "@/api/schema";
import { useTheme } from "@/app/theme";

/** The shapes that the registry names, as drawings. */
const SHAPES: Record<string, LucideIcon> = {
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

export interface Colours {
  fg: string;
  bg: string;
}

/** The colours of a token in the theme that is shown. */
export function coloursOf(token: SchemaTokenDef | undefined, theme: string): Colours {
  if (!token) return { fg: "var(--soft)", bg: "var(--wash)" };
  const high = theme !== "light";
  return high ? { fg: token.high_contrast.fg, bg: token.high_contrast.bg } : { fg: token.fg, bg: token.bg };
}

export function useToken(name: string | undefined): { colours: Colours; Shape: LucideIcon } {
  const theme = useTheme();
  const registry = useRegistry();
  const token = registry.data?.tokens.find((token) => token.token === name);
  return {
    colours: coloursOf(token, theme),
    Shape: SHAPES[token?.shape_token ?? ""] ?? (token ? Circle : Ban),
  };
}

export function StateChip({ token, words, title }: { token: string; words: string; title?: string }) {
  const { colours, Shape } = useToken(token);
  return (
    <span
      title={title}
      style={{ color: colours.fg, backgroundColor: colours.bg }}
      className="inline-flex max-w-full items-center gap-1.5 rounded-full border border-current/25 px-2 py-0.5 text-xs font-medium"
    >
      <Shape aria-hidden size={13} className="shrink-0" />
      <span className="truncate">{words}</span>
    </span>
  );
}
