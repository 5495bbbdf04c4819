// What the pages keep in their URLs, read back with care: an address can be typed by hand.
import { LANES, type LaneBy } from "@/graph/model";

export function text(search: Record<string, unknown>, key: string): string | undefined {
  const value = search[key];
  if (typeof value === "number") return String(value);
  return typeof value === "string" && value !== "" ? value : undefined;
}

function whole(search: Record<string, unknown>, key: string): number | undefined {
  const value = Number(search[key]);
  return Number.isInteger(value) && value > 0 ? value : undefined;
}

type Search = Record<string, unknown>;

export const ROLLUPS = ["red", "yellow", "green", "gray"] as const;
export const RUN_STATES = [
  "executing",
  "blocked",
  "paused",
  "stopped",
  "queued",
  "compensating",
  "completed",
  "failed",
  "cancelled",
  "voided",
] as const;

export interface RunFilter {
  rollup?: (typeof ROLLUPS)[number];
  state?: (typeof RUN_STATES)[number];
  definition?: string;
  pic?: string;
  q?: string;
}

export const runFilter = (search: Search): RunFilter => ({
  rollup: ROLLUPS.find((one) => one === search.rollup),
  state: RUN_STATES.find((one) => one === search.state),
  definition: text(search, "definition"),
  pic: text(search, "pic"),
  q: text(search, "q"),
});

export interface RunSearch {
  tab?: string;
  step?: string;
  lanes?: LaneBy;
  collapsed?: string;
  /** Sub-workflows whose steps are shown, by the ids of their steps. */
  expanded?: string;
  critical?: boolean;
}

const lanesOf = (search: Search) => LANES.find((one) => one === search.lanes && one !== LANES[0]);

export const runSearch = (search: Search): RunSearch => ({
  tab: text(search, "tab"),
  step: text(search, "step"),
  lanes: lanesOf(search),
  collapsed: text(search, "collapsed"),
  expanded: text(search, "expanded"),
  critical: search.critical === true || undefined,
});

export interface ProcessFilter {
  definition?: string;
  current_state?: string;
  q?: string;
}

export const processFilter = (search: Search): ProcessFilter => ({
  definition: text(search, "definition"),
  current_state: text(search, "current_state"),
  q: text(search, "q"),
});

export interface DefinitionSearch extends Pick<RunSearch, "step" | "lanes" | "collapsed" | "expanded"> {
  version?: number;
  tab?: string;
  with?: number;
}

export const definitionSearch = (search: Search): DefinitionSearch => ({
  version: whole(search, "version"),
  with: whole(search, "with"),
  tab: text(search, "tab"),
  step: text(search, "step"),
  lanes: lanesOf(search),
  collapsed: text(search, "collapsed"),
  expanded: text(search, "expanded"),
});

export interface LedgerSearch {
  instance_id?: string;
  actor_ref?: string;
  action_ref?: string;
  /** The record that is open. */
  record?: string;
}

export const ledgerSearch = (search: Search): LedgerSearch => ({
  instance_id: text(search, "instance_id"),
  actor_ref: text(search, "actor_ref"),
  action_ref: text(search, "action_ref"),
  record: text(search, "record"),
});

export const PROBLEM_STATES = ["open", "resolved", "any"] as const;

export interface ProblemSearch {
  /** Open ones, if nothing else is said. */
  state?: (typeof PROBLEM_STATES)[number];
  /** The problem that is open. */
  item?: string;
}

export const problemSearch = (search: Search): ProblemSearch => ({
  state: PROBLEM_STATES.find((one) => one === search.state && one !== "open"),
  item: text(search, "item"),
});

export interface TimelineSearch {
  trace_id?: string;
  run_id?: string;
  step?: string;
  instance_id?: string;
}

/** Of exactly one of these. */
export const timelineSearch = (search: Search): TimelineSearch => {
  const trace_id = text(search, "trace_id");
  if (trace_id) return { trace_id };
  const run_id = text(search, "run_id");
  if (run_id) return { run_id, step: text(search, "step") };
  return { instance_id: text(search, "instance_id") };
};

export interface ProposalFilter {
  state?: string;
  target?: string;
  kind?: string;
}

export const proposalFilter = (search: Search): ProposalFilter => ({
  state: text(search, "state"),
  target: text(search, "target"),
  kind: text(search, "kind"),
});

export interface EditorSearch {
  from?: string;
  /** The change is proposed, not published. */
  propose?: boolean;
}

export const editorSearch = (search: Search): EditorSearch => ({
  from: text(search, "from"),
  propose: search.propose === true || undefined,
});

/** The version that a proposal is to be based on. */
export const baseSearch = (search: Search): { base?: number } => ({ base: whole(search, "base") });

export interface AdminSearch {
  tab?: string;
  subject_ref?: string;
  action_scope?: string;
  at?: string;
}

export const adminSearch = (search: Search): AdminSearch => ({
  tab: text(search, "tab"),
  subject_ref: text(search, "subject_ref"),
  action_scope: text(search, "action_scope"),
  at: text(search, "at"),
});

export interface SignInSearch {
  /** Where the person was. */
  next?: string;
  why?: "idle" | "ended";
}

export const signInSearch = (search: Search): SignInSearch => ({
  next: text(search, "next"),
  why: search.why === "idle" || search.why === "ended" ? search.why : undefined,
});

/** Where to go after signing in. Only an address of this site: a forged link to the sign-in must not lead to another. */
export function wayBack(next: string | undefined): string {
  return next?.startsWith("/") && !/^\/[/\\]/.test(next) ? next : "/inbox";
}
